"""What enters a head: embeddings of tokens, and hidden states of the target or of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.layers import Norm
from specplan.runtime.models.heads.parts.asked import ByLayer, Ngrams
from specplan.runtime.models.heads.parts.by_token import ByToken, Sampling
from specplan.runtime.models.heads.parts.streams import SlotAdapters


class Entering(nn.Module):
    """Embeddings, matrices and norms before a head's layers; names of weights are its fields."""

    def __init__(self, description: HeadDescription) -> None:
        super().__init__()
        self.description = description
        one, reads, width = description, description.reads, description.hidden_size
        epsilon = one.inner_norm
        self.embedding = self.mask_state = self.project = None
        tables, self.many = one.steps, one.join == "sum"
        if one.embedding == "own":
            self.embedding = nn.Embedding(one.token_ids, width)
        if one.embedding == "each":
            self.embeddings = shared_list(
                tables, lambda: nn.Embedding(one.token_ids, width), "embedding" in one.tied
            )
        wide = reads.count * reads.width
        if one.join in ("concat", "sample"):
            self.project = nn.Linear(width + reads.width, width, bias=reads.bias)
        elif one.join == "tandem":
            self.by_layer = ByLayer(one)
        elif reads.project:
            self.project = nn.Linear(wide, width, bias=reads.bias)
        if one.join == "wide" or (one.join == "concat" and reads.norm == "each"):
            self.token_norm, self.state_norm = Norm(width, epsilon), Norm(width, epsilon)
        if one.join == "wide" and reads.norm != "none":
            each = reads.norm == "each"
            sizes = [reads.width] * reads.count if each else [wide]
            self.feature_norms = nn.ModuleList(Norm(size, epsilon) for size in sizes)
        if reads.normed_after:
            self.after_project = Norm(width, epsilon)
        if one.join == "slots":
            levels, rank = one.levels, one.levels.rank
            shape = (width, width) if levels.enters and not rank else (width,)
            self.slots = nn.Parameter(torch.empty(levels.count, *shape))
            self.adapters = SlotAdapters(one) if levels.adapted else None
            if rank:
                self.map_down = nn.Parameter(torch.empty(rank, width))
                self.map_up = nn.Parameter(torch.empty(width, rank))
        if one.levels.own_state:
            self.mask_state = nn.Parameter(torch.empty(1, 1, wide))
        if one.join == "stages":
            self.stage = nn.Linear(2 * width, width)
        if one.join == "ngram":
            self.ngram = Ngrams(one)
        if one.join == "sample":
            self.sampling = Sampling(width, one.body.config["intermediate_size"], epsilon)
        if one.by_token is not None:
            self.by_token = ByToken(one)
        if one.join == "recurrent":
            self.cell_state = nn.Linear(reads.width, reads.width)
            self.cell_token = nn.Linear(reads.width, reads.width, bias=False)
        if one.join == "sum":
            self._steps_of_sums()

    def _steps_of_sums(self) -> None:
        """Matrices and norms of the steps that add embeddings to states."""
        one, width = self.description, self.description.hidden_size
        epsilon = one.inner_norm
        self.first = Norm(one.reads.width, epsilon, weight=False)
        self.projects = nn.ModuleList([nn.Linear(one.reads.width, width, bias=False)])
        later = one.steps - 1, lambda: nn.Linear(width, width, bias=False), "project" in one.tied
        self.projects.extend(shared_list(*later))
        self.norms_by_step = shared_list(
            one.steps, lambda: Norm(width, epsilon, bias=True), "norm" in one.tied
        )

    def enter(
        self,
        target: CausalModel,
        tokens: Tensor,
        positions: Tensor,
        features: Tensor | None,
        known: Tensor | None,
        steps: Tensor | None,
    ) -> Tensor:
        """See `specplan.runtime.models.modules.Module.enter`."""
        one = self.description
        if features is None:
            wide = one.reads.count * one.reads.width
            features = torch.zeros(*positions.shape, wide, dtype=target.dtype, device=tokens.device)
            known = steps = torch.zeros_like(positions)
        assert known is not None and steps is not None, "states come with their steps"
        features = features * known[:, :, None].to(features.dtype)
        embedded = None if self.many else self.embed(target, tokens)
        match one.join:
            case "feature":
                return self.state(target, features, steps)
            case "block":
                assert embedded is not None
                return self._block(target, embedded, features, known, steps)
            case "concat" | "wide":
                assert embedded is not None
                return self._joined(target, embedded, positions, features, steps)
            case "stages":
                assert embedded is not None
                return torch.cat([self.state(target, features, steps), embedded], -1)
            case "ngram":
                assert embedded is not None
                state = self.state(target, features, steps)
                known = state if state.shape[2] != one.hidden_size else state.repeat(1, 1, 2)
                return torch.cat([self.ngram(embedded), known], -1)
            case "tandem":
                assert embedded is not None
                return torch.cat([embedded, self.by_layer(features, steps)], -1)
            case "sample":
                assert embedded is not None and self.project is not None
                state = self.state(target, features, steps)[..., -one.hidden_size :]
                joined = self.project(torch.cat([embedded, state], -1))
                return cast(Tensor, self.sampling(joined, embedded))
            case "attend":
                assert embedded is not None
                return self.by_token.enter(self.state(target, features, steps), embedded)
            case "stack" | "recurrent":
                assert embedded is not None
                return self._longer(target, embedded, features, steps)
            case "sum":
                return self._sum(target, tokens, features, steps)
            case "slots" | "neighbours":
                return features

    def embed(self, target: CausalModel, tokens: Tensor) -> Tensor:
        """Embeddings `[B, T, width]` by the head's own table, or the target's."""
        if self.embedding is not None:
            return cast(Tensor, self.embedding(tokens))
        return target.family.embed(tokens, torch.zeros_like(tokens))

    def state(self, target: CausalModel, features: Tensor, steps: Tensor) -> Tensor:
        """States as they enter: the target's are normed and projected, its own are as they are."""
        one, reads = self.description, self.description.reads
        own = one.hidden_size
        if features.shape[2] != reads.count * reads.width:
            return features
        first = target.family.finish(features) if reads.finished else features
        if hasattr(self, "feature_norms"):
            norms = list(self.feature_norms)
            parts = zip(norms, first.chunk(len(norms), -1), strict=True)
            first = torch.cat([norm(part) for norm, part in parts], -1)
        if reads.project and self.project is not None:
            first = self.project(first)
        if reads.normed_after:
            first = self.after_project(first)
        if features.shape[2] != own or first.shape[2] != own:
            return first
        return torch.where((steps > 0)[:, :, None], features, first)

    def norms(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Token and state through their norms."""
        return self.token_norm(token), self.state_norm(state)

    def _joined(
        self,
        target: CausalModel,
        embedded: Tensor,
        positions: Tensor,
        features: Tensor,
        steps: Tensor,
    ) -> Tensor:
        state = self.state(target, features, steps)
        if not self.description.first_embedding:
            embedded = embedded * (positions != self.description.begins)[:, :, None].to(
                embedded.dtype
            )
        if self.description.join == "wide":
            return torch.cat([embedded, state], -1)
        assert self.project is not None
        if self.description.reads.norm == "each":
            embedded, state = self.norms(embedded, state)
        return cast(Tensor, self.project(torch.cat([embedded, state], -1)))

    def _block(
        self, target: CausalModel, embedded: Tensor, features: Tensor, known: Tensor, steps: Tensor
    ) -> Tensor:
        """States where there are, else embeddings; the last number tells which."""
        text = known[:, :, None].to(torch.bool)
        joined = torch.where(text, self.state(target, features, steps), embedded)
        return torch.cat([joined, text.to(joined.dtype)], -1)

    def _longer(
        self, target: CausalModel, embedded: Tensor, features: Tensor, steps: Tensor
    ) -> Tensor:
        """The target's state, and what became of the tokens since, side by side."""
        one, width = self.description, self.description.reads.width
        count, later = one.hidden_size // width, (steps > 0)[:, :, None]
        if features.shape[2] == width:
            first = target.family.finish(features)
            before = functional.pad(first, (0, (count - 1) * width))
        else:
            before = features * later.to(features.dtype)
        if one.join == "recurrent":
            state = self.cell_token(embedded) + self.cell_state(before[..., width:])
            return torch.cat([before[..., :width], functional.silu(state)], -1)
        place = torch.arange(count, device=steps.device) == steps[:, :, None] + 1
        parts = before.unflatten(2, (count, width))
        return torch.where(place[..., None], embedded[:, :, None], parts).flatten(2)

    def _sum(self, target: CausalModel, tokens: Tensor, features: Tensor, steps: Tensor) -> Tensor:
        """Wertheimer et al. 2024: the token's embedding is added with a weight, and normed."""
        one, width = self.description, self.description.reads.width
        weight = 0.5 ** (0.5 / one.steps)
        alpha = ((1.0 - weight**2) * one.hidden_size / 2.0) ** 0.5 / weight

        def step(number: int) -> Tensor:
            given = features[..., :width] if number == 0 else features[..., : one.hidden_size]
            if number == 0:
                given = target.family.finish(given)
                given = self.first(given) / 2**0.5 if one.scaled_input else given
            projected = self.projects[number](given)
            mixed = projected + alpha * self.embeddings[number](tokens)
            return functional.gelu(self.norms_by_step[number](mixed))

        later = features.shape[2] == one.hidden_size
        numbers = range(one.steps) if features.shape[2] == width and later else None
        if numbers is None:
            numbers = range(1, one.steps) if later else range(1)
        return by_step(step, numbers, steps)

    def slot(self, states: Tensor, level: int) -> Tensor:
        """What enters so many tokens ahead of nodes with these states, `[B, R, F]`, new memory.

        Raises:
            MissingCapabilityError: nothing was trained for that.
        """
        if level > len(self.slots):
            raise MissingCapabilityError(
                f"the look-ahead tokens are {len(self.slots)}, and the plan looks {level} ahead",
                remedy="Look less far ahead, or give a checkpoint with more of them.",
            )
        own = self.slots[level - 1]
        if self.description.levels.rank:
            mapped = functional.linear(functional.linear(states, self.map_down), self.map_up)
            return mapped + own
        if self.description.levels.enters:
            return functional.linear(states, own)
        return own.repeat(*states.shape[:2], 1)

    def mask(self, target: CausalModel) -> Tensor:
        """What enters at a slot, `[1, 1, F]`."""
        one = self.description
        assert one.levels.mask_token is not None, "slots have a mask token"
        token = torch.tensor([[one.levels.mask_token]], device=target.device)
        embedded, zero = self.embed(target, token), torch.zeros_like(token)
        if one.join == "block":
            return torch.cat([embedded, torch.zeros_like(embedded[..., :1])], -1)
        assert self.mask_state is not None
        return torch.cat([embedded, self.state(target, self.mask_state, zero)], -1)


def shared_list(count: int, make: Callable[[], nn.Module], tied: bool) -> nn.ModuleList:
    """Modules one by one, or one of them as often."""
    first = make()
    return nn.ModuleList(first if tied or not index else make() for index in range(count))


def by_step(run: Callable[[int], Tensor], numbers: range, steps: Tensor) -> Tensor:
    """What each row's own step makes of it; the last one serves all further steps.

    Args:
        run: a step, by its number, on all rows: `[B, T, F]`.
        numbers: of the steps that rows may be at.
        steps: of each row, int64 `[B, T]`.
    """
    first, *more = numbers
    if more and steps.device.type == "cpu" and not torch.compiler.is_compiling():
        least, most = int(steps.min()), int(steps.max())
        if least == most or least >= numbers[-1]:
            return run(min(max(least, first), numbers[-1]))
    result = run(first)
    for number in more:
        result = torch.where((steps >= number)[:, :, None], run(number), result)
    return result
