"""How states go through the layers of a head: what each layer reads of them and writes to them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.runtime.models.attention import LayerMask
from specplan.runtime.models.heads.entering import Entering
from specplan.runtime.models.heads.layers import Layers
from specplan.runtime.models.heads.parts.asked import asked


class Passing:
    """See the module's docstring.

    Args:
        description: of the head.
        entering: its matrices and norms before the layers.
        layers: None for none.

    Attributes:
        width: of states behind the layers.
    """

    def __init__(
        self, description: HeadDescription, entering: Entering, layers: Layers | None
    ) -> None:
        one, body = description, description.body
        self.description, self.entering = one, entering
        self.layers: Any = layers
        self.by_token = one.by_token is not None
        self.width = one.hidden_size + (one.join == "block")
        self.width *= body.layers if body.side_by_side else 1
        self.staged = one.join == "stages"
        self.asks = one.join in ("ngram", "tandem")
        twice = self.by_token or self.staged or one.join == "ngram" or body.two_states
        self.width *= body.layers + 1 if one.join == "tandem" else 1 + twice

    def places(self, positions: Tensor) -> Tensor:
        """Positions that layers turn by: where states are keys, they stand before what asks."""
        return torch.cat([positions + 1, positions], 1) if self.asks else positions

    def begin(self, states: Tensor) -> Tensor:
        """What enters, as the first layer takes it."""
        body = self.description.body
        return states.repeat(1, 1, body.layers) if body.side_by_side else states

    def layer(
        self,
        number: int,
        states: Tensor,
        mask: LayerMask,
        angles: tuple[Tensor, Tensor],
        writer: Any,
    ) -> Tensor:
        """States `[B, T, F]` after a layer."""
        stack, layer = self.layers, self.layers[number]
        if self.description.join == "block":  # text gives keys and values, and does not change
            inner, text = states[..., :-1], states[..., -1:]
            given = torch.where(text > 0, inner, layer.input_layernorm(inner))
            after = stack.attend(number, given, inner, mask, angles, writer)
            return torch.cat([torch.where(text > 0, inner, after), text], -1)
        if stack.body.side_by_side:
            parts = [*states.chunk(stack.body.layers, -1)]
            own = parts[number]
            given = layer.input_layernorm(own)
            parts[number] = stack.attend(number, given, own, mask, angles, writer)
            return torch.cat(parts, -1)
        if self.staged:
            first, second = states.chunk(2, -1)
            given = layer.input_layernorm(second if number else first)
            after = stack.attend(number, given, second if number else first, mask, angles, writer)
            if number == 0:
                first, after = after, self.entering.stage(torch.cat([after, second], -1))
            return torch.cat([first, after], -1)
        if self.asks:
            return self._asking(number, states, mask, angles, writer)
        after = stack.attend(number, *self.given(number, states), mask, angles, writer)
        if self.by_token:
            return torch.cat([after, states.chunk(2, -1)[1]], -1)
        whole: Tensor = after
        return whole

    def _asking(
        self,
        number: int,
        states: Tensor,
        mask: LayerMask,
        angles: tuple[Tensor, Tensor],
        writer: Any,
    ) -> Tensor:
        """A layer whose keys and values are those of states beside what runs."""
        layer = self.layers[number]
        if self.description.join == "ngram":
            asking, last, before = states.chunk(3, -1)
            return torch.cat([last, asked(layer, number, asking, before, mask, angles, writer)], -1)
        asking, *known = states.chunk(len(self.layers) + 1, -1)
        after = asked(layer, number, asking, known[number], mask, angles, writer)
        known[number] = asking
        return torch.cat([after, *known], -1)

    def given(self, number: int, states: Tensor) -> tuple[Tensor, Tensor]:
        """What the attention of a layer reads, and what its output is added to."""
        stack = self.layers
        states = states.chunk(2, -1)[0] if self.by_token else states
        if stack.wide and number == 0:
            token, state = states.chunk(2, -1)
            token, normed = self.entering.norms(token, state)
            return torch.cat([token, normed], -1), normed if stack.body.normed_residual else state
        bare = number == 0 and not stack.body.input_norm
        return states if bare else stack[number].input_layernorm(states), states

    def end(self, states: Tensor) -> Tensor:
        """States behind the last layer, as they are kept."""
        return self.entering.by_token.behind(states) if self.by_token else states

    def read(self, states: Tensor, level: int) -> Tensor:
        """The part of kept states that the logits of a level are computed from."""
        body = self.description.body
        if self.description.join == "block":
            return states[..., :-1]
        if body.side_by_side:
            return states.chunk(body.layers, -1)[level]
        if self.description.join == "tandem":
            return states[..., : self.description.hidden_size]
        return states.chunk(2, -1)[0] if body.two_states else states
