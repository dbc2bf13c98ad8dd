"""From states of a head to logits over the target's vocabulary."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.entering import by_step, shared_list
from specplan.runtime.models.heads.layers import Norm
from specplan.runtime.models.heads.parts.mixing import AutoEmbedding


class Outputs(nn.Module):
    """Norm, residual blocks and LM heads; names of weights are its fields.

    Attributes:
        tokens: int64 `[vocabulary]`, the target's token of each that it knows; None for all.
    """

    tokens: Tensor | None

    def __init__(self, description: HeadDescription) -> None:
        super().__init__()
        self.description = description
        one, output = description, description.output
        width = one.reads.width if one.join == "stack" else one.hidden_size
        width *= 2 if one.join == "ngram" else 1
        self.norm = Norm(width, one.inner_norm) if output.norm else None
        each = output.head == "each" or one.by_token is not None
        count = max(one.steps, one.levels.count) if each else 1
        self.mixed = AutoEmbedding(one) if one.levels.mixed else None
        if output.linear:
            self.linear, self.beside = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.blocks, self.shortcuts = nn.ModuleList(), nn.ModuleList()
        if output.inner:
            self.blocks.extend(
                nn.ModuleList([nn.Linear(width, output.inner), nn.Linear(output.inner, width)])
                for _ in range(one.levels.count)
            )
        for head in range(count if output.residual and not output.inner else 0):
            first = width * (head + 2) if one.join == "stack" else width
            later = 2 * width if output.neighbours else width
            sizes = [later if output.neighbours else first, *[later] * (output.residual - 1)]
            self.blocks.append(
                nn.ModuleList(nn.Linear(size, width, bias=output.residual_bias) for size in sizes)
            )
            if one.join == "stack":
                self.shortcuts.append(nn.Linear(first, width, bias=output.residual_bias))
        self.heads: nn.ModuleList | None = None
        if output.head != "target":
            self.heads = shared_list(
                count,
                lambda: nn.Linear(width, output.vocabulary, bias=output.bias),
                "head" in one.tied,
            )
        known = None
        if output.vocabulary < one.token_ids:
            known = torch.zeros(output.vocabulary, dtype=torch.int64)
        self.register_buffer("tokens", known)

    def logits(
        self, target: CausalModel, states: Tensor, steps: Tensor | None, level: int
    ) -> Tensor:
        """Of the tokens that it knows; see `specplan.runtime.models.modules.Module.rows`."""
        one = self.description
        if one.by_token is not None:
            return self._of(target, self.finished(states, steps, level), 0)
        if one.steps == 1 or steps is None:
            return self._logits(target, states, level)
        return by_step(lambda step: self._logits(target, states, step), range(one.steps), steps)

    def _logits(self, target: CausalModel, states: Tensor, number: int) -> Tensor:
        """Logits `[B, T, vocabulary]` by one head."""
        output = self.description.output
        if self.mixed is not None:
            return self._of(target, self.mixed(states, number), 0)
        if self.description.join == "stack":
            states = states[..., : self.description.reads.width * (number + 2)]
        if self.norm is not None:
            states = self.norm(states)
        if output.finished:
            states = target.family.finish(states)
        if output.inner:  # Stern et al. 2018, arXiv 1811.03115
            layers: Any = self.blocks[number]
            return self._of(target, states + layers[1](functional.relu(layers[0](states))), 0)
        number = number if output.head == "each" else 0
        if output.neighbours:
            states = self._beside(states, number, output.residual)
        else:
            states = self._residual(states, number)
        return self._of(target, states, number)

    def finished(self, states: Tensor, steps: Tensor | None, level: int) -> Tensor:
        """States [s; e] as the matrix of logits reads them, of heads whose states meet tokens."""
        states = self._by_token(states, steps, level)
        return states if self.norm is None else cast(Tensor, self.norm(states))

    def _by_token(self, states: Tensor, steps: Tensor | None, level: int) -> Tensor:
        """States [s; e] as one vector each: by a matrix, or by the residual blocks of a step."""
        one, inner = self.description, states.chunk(2, -1)[0]
        kinds = range(2 if one.output.linear else one.steps)

        def made(step: int) -> Tensor:
            if not one.output.linear:
                return self._residual(inner, step)
            return cast(Tensor, self.beside(states) if step else self.linear(inner))

        if steps is None:
            return made(min(level, kinds[-1]))
        return by_step(made, kinds, steps)

    def _of(self, target: CausalModel, states: Tensor, number: int) -> Tensor:
        """Logits of states that are done, by one matrix."""
        if self.heads is None:
            logits: Tensor = target.head(states)
            return logits if self.tokens is None else logits[..., self.tokens]
        made: Tensor = self.heads[number](states)
        return made

    def _residual(self, states: Tensor, number: int) -> Tensor:
        """States behind the residual blocks of a head."""
        blocks: Any = self.blocks[number] if len(self.blocks) else ()
        for index, block in enumerate(blocks):
            short = states
            if index == 0 and len(self.shortcuts):
                short = self.shortcuts[number](states)
            states = short + functional.silu(block(states))
        return states

    def _beside(self, states: Tensor, number: int, depth: int) -> Tensor:
        """States behind the first blocks of a head, each beside that of the head before.

        Cerberus, arXiv 2410.13344: x_i + SiLU(W [x_i; x_(i-1)] + b); of the first head, x_(i-1) is
        the target's state.
        """
        if not depth:
            return states
        own = self._beside(states, number, depth - 1)
        before = self._beside(states, number - 1, depth - 1) if number else states
        blocks: Any = self.blocks[number]
        return own + functional.silu(blocks[depth - 1](torch.cat([own, before], -1)))

    def spread(self, logits: Tensor) -> Tensor:
        """Logits over the target's vocabulary; minus infinity for tokens that it does not know."""
        if self.tokens is None or logits.shape[-1] == self.description.token_ids:
            return logits
        shape = (*logits.shape[:-1], self.description.token_ids)
        whole = torch.full(shape, -torch.inf, dtype=logits.dtype, device=logits.device)
        return whole.index_copy(-1, self.tokens, logits)
