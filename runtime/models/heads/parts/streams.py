"""What slots have of a target's layers that its own tokens know nothing of: so its text stays.

Speculative Streaming (Bhendawade et al. 2024, arXiv 2402.11131): streams run through the target's
last layers with adapters (LoRA, Hu et al. 2021, arXiv 2106.09685), W x + U D x. BiTA (Lin et al.
2024, arXiv 2401.12522; linfeng93/BiTA, prefix_encoder.py): masks see a soft prompt, which is keys
and values of every layer, as they are, without positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.heads.shared import attention_sizes
from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.models.attention import LayerMask
from specplan.runtime.models.heads.text_attention import TextAndOwn


class SlotAdapters(nn.Module):
    """Weights of the layers from the one on at which slots enter.

    `qkv_down` and `qkv_up` belong to the projections of queries, keys and values side by side,
    `output_down` and `output_up` to that behind the attention: `[layers, rank, inputs]` and
    `[layers, outputs, rank]`. `prompt_keys` and `prompt_values` are `[layers, tokens, H_kv D]`.
    """

    def __init__(self, description: HeadDescription) -> None:
        super().__init__()
        one, width = description.levels, description.hidden_size
        joined, mixed = attention_sizes(description.body.config)
        self.first, count, rank = one.enters, one.adapted, one.adapter_rank
        self.adapts, self.prompt = rank > 0, one.prompt
        if rank:
            self.qkv_down = nn.Parameter(torch.empty(count, rank, width))
            self.qkv_up = nn.Parameter(torch.empty(count, joined, rank))
            self.output_down = nn.Parameter(torch.empty(count, rank, mixed))
            self.output_up = nn.Parameter(torch.empty(count, width, rank))
        if one.prompt:
            shape = count, one.prompt, (joined - mixed) // 2
            self.prompt_keys, self.prompt_values = (
                nn.Parameter(torch.empty(shape)) for _ in range(2)
            )

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
        if layer < self.adapters.first or not self.adapters.adapts:
            return made
        if self.columns is None:
            return made + self.adapters.of(given, layer, part)
        made, given = made.unflatten(0, (rows, -1)), given.unflatten(0, (rows, -1))
        before = made.shape[1] - self.columns
        own = made[:, before:] + self.adapters.of(given[:, before:], layer, part)
        return torch.cat([made[:, :before], own], 1).flatten(0, 1)

    def seen(
        self, query: Tensor, key: Tensor, value: Tensor, mask: LayerMask, layer: int
    ) -> tuple[Tensor, Tensor, LayerMask]:
        """See `Additions.seen`."""
        own, count = self.adapters, self.adapters.prompt
        if not count or layer < own.first:
            return key, value, mask
        parts = []
        for prompt, given in ((own.prompt_keys, key), (own.prompt_values, value)):
            heads = prompt[layer - own.first].unflatten(1, (given.shape[1], -1)).transpose(0, 1)
            parts.append(torch.cat([heads.expand(len(given), -1, -1, -1), given], 2))
        return parts[0], parts[1], self._before(mask, query.shape[2], count)

    def _before(self, mask: LayerMask, tokens: int, count: int) -> LayerMask:
        """A mask with columns before its own, which slots alone see."""
        if isinstance(mask, TextAndOwn):
            zeros = mask.text.new_zeros(*mask.text.shape[:3], count)
            return replace(mask, text=torch.cat([zeros, mask.text], 3))
        if not isinstance(mask, Tensor):
            raise MissingCapabilityError(
                "soft prompts do not run with kernels, or with heads that read a part of the cache",
                remedy="Run the plan by another backend, or without its policy.",
            )
        columns = tokens if self.columns is None else self.columns
        hidden = torch.arange(tokens, device=mask.device) < tokens - columns
        least = torch.finfo(mask.dtype).min
        rows = torch.zeros_like(hidden, dtype=mask.dtype).masked_fill(hidden, least)
        rows = rows.repeat(mask.shape[2] // tokens)[:, None].expand(mask.shape[0], 1, -1, count)
        return torch.cat([rows, mask], 3)
