"""Layers that tokens ask, and states answer: Chimera and Tandem.

Sources: `specplan.cost_models.models.heads.states_as_keys`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.runtime.models.attention import LayerMask, grouped_attention
from specplan.runtime.models.rotary_layers import for_rotation, rotate


class Ngrams(nn.Module):
    """x + SiLU(W x + b) of the embeddings of several tokens, and a matrix to one's width."""

    def __init__(self, description: HeadDescription) -> None:
        super().__init__()
        width = description.hidden_size
        wide = width * description.tokens_read
        self.block, self.project = nn.Linear(wide, wide), nn.Linear(wide, width, bias=False)

    def forward(self, embedded: Tensor) -> Tensor:
        """From `[B, T, tokens, width]` to `[B, T, width]`."""
        joined = embedded.flatten(2)
        return cast(Tensor, self.project(joined + functional.silu(self.block(joined))))


class ByLayer(nn.ModuleList):
    """What gives each layer of a small model its keys and values, side by side.

    Along the text a matrix for each makes it of a state of the target; at drafted tokens it is what
    entered the layer one token before, which follows the small model's own state.
    """

    def __init__(self, description: HeadDescription) -> None:
        self.own_width, self.reads = description.hidden_size, description.reads
        count, wide = self.reads.count, self.reads.width
        super().__init__(nn.Linear(wide, self.own_width, bias=False) for _ in range(count))

    def forward(self, features: Tensor, steps: Tensor) -> Tensor:
        """From states of several layers, or own ones, to `[B, T, layers * width]`."""
        own, reads = features[..., self.own_width :], self.reads
        if features.shape[2] != reads.count * reads.width:
            return own
        parts = zip(self, features.chunk(reads.count, -1), strict=True)
        first = torch.cat([matrix(part) for matrix, part in parts], -1)
        if own.shape != first.shape:
            return first
        return torch.where((steps > 0)[:, :, None], own, first)


def asked(
    layer: Any,
    number: int,
    asking: Tensor,
    states: Tensor,
    mask: LayerMask,
    angles: tuple[Tensor, Tensor],
    writer: Any,
) -> Tensor:
    """A decoder layer whose keys and values are those of states, and at each place its own.

    Args:
        layer: of `transformers`.
        number: its number, for the writer.
        asking: what runs through it, `[B, T, width]`.
        states: that stand one token before, whose keys and values are written; the same shape.
        mask: see `grouped_attention`, of what was written.
        angles: cosines and sines `[B, 2 T, head_dim]`, of what asks and then of the states.
        writer: where keys and values go and come from.
    """
    at, count = layer.self_attn, asking.shape[1]
    given, known = layer.input_layernorm(asking), layer.input_layernorm(states)
    cos, sin = for_rotation(*angles)

    def turned(inputs: Tensor, name: str, own: bool) -> Tensor:
        heads = getattr(at, f"{name}_proj")(inputs).unflatten(2, (-1, at.head_dim))
        norm = getattr(at, f"{name}_norm", None)
        heads = heads if norm is None else norm(heads)
        part = slice(0, count) if own else slice(count, None)
        return rotate(heads, cos[:, part], sin[:, part]).transpose(1, 2)

    def values(inputs: Tensor) -> Tensor:
        made: Tensor = at.v_proj(inputs).unflatten(2, (-1, at.head_dim)).transpose(1, 2)
        return made

    stored = writer.update(turned(known, "k", own=False), values(known), number)
    keys = torch.cat([stored[0], turned(given, "k", own=True)], 2)
    mixed, _ = grouped_attention(
        None, turned(given, "q", own=True), keys, torch.cat([stored[1], values(given)], 2),
        _and_itself(mask, count), at.scaling,
    )  # fmt: skip
    after = asking + at.o_proj(mixed.flatten(2))
    return cast(Tensor, after + layer.mlp(layer.post_attention_layernorm(after)))


def _and_itself(mask: LayerMask, count: int) -> LayerMask:
    """The mask, with a further column for each row, which that row alone sees."""
    if not isinstance(mask, Tensor):  # roots see what is behind the text as their own
        return mask
    same = torch.eye(count, dtype=torch.bool, device=mask.device)
    own = torch.zeros_like(same, dtype=mask.dtype).masked_fill(~same, torch.finfo(mask.dtype).min)
    own = own.repeat(mask.shape[2] // count, 1).expand(mask.shape[0], 1, -1, -1)
    return torch.cat([mask, own], 3)
