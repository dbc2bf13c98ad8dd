"""What streams add to a target's layers: adapters of attention at slots, and nowhere else.

Speculative Streaming (Bhendawade et al. 2024, arXiv 2402.11131): streams run through the target's
last layers with adapters (LoRA, Hu et al. 2021, arXiv 2106.09685), W x + U D x, of which its own
tokens know nothing, so that what it says of them does not change.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.heads.shared import attention_sizes


class SlotAdapters(nn.Module):
    """Low-rank matrices of the layers from the one on at which slots enter.

    `qkv_down` and `qkv_up` belong to the projections of queries, keys and values side by side,
    `output_down` and `output_up` to that behind the attention: `[layers, rank, inputs]` and
    `[layers, outputs, rank]`.
    """

    def __init__(self, description: HeadDescription) -> None:
        super().__init__()
        one, width = description.levels, description.hidden_size
        joined, mixed = attention_sizes(description.body.config)
        self.first, count, rank = one.enters, one.adapted, one.adapter_rank
        self.qkv_down = nn.Parameter(torch.empty(count, rank, width))
        self.qkv_up = nn.Parameter(torch.empty(count, joined, rank))
        self.output_down = nn.Parameter(torch.empty(count, rank, mixed))
        self.output_up = nn.Parameter(torch.empty(count, width, rank))

    def of(self, given: Tensor, layer: int, part: str) -> Tensor:
        """What is added to a projection of what it is given, `[..., outputs]`."""
        down, up = getattr(self, f"{part}_down"), getattr(self, f"{part}_up")
        number = layer - self.first
        return functional.linear(functional.linear(given, down[number]), up[number])


class AtSlots(NamedTuple):
    """The additions of a pass, see `specplan.runtime.models.attention.Additions`.

    Attributes:
        adapters: of the layers.
        columns: how many there are at slots, the last ones; None where all are.
    """

    adapters: SlotAdapters
    columns: int | None = None

    def added(self, made: Tensor, given: Tensor, layer: int, part: str, rows: int) -> Tensor:
        """See `Additions.added`."""
        if layer < self.adapters.first:
            return made
        if self.columns is None:
            return made + self.adapters.of(given, layer, part)
        made, given = made.unflatten(0, (rows, -1)), given.unflatten(0, (rows, -1))
        before = made.shape[1] - self.columns
        own = made[:, before:] + self.adapters.of(given[:, before:], layer, part)
        return torch.cat([made[:, :before], own], 1).flatten(0, 1)
