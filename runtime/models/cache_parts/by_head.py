"""Passes in which some heads read the whole cache, and the others a small part of it.

DuoAttention (Xiao et al. 2024, arXiv 2410.10819, section 2) tells retrieval heads, which look up
distant text, from streaming heads, which make do with the first tokens and the latest ones. Here
both read one cache, so that nothing is copied but the few keys and values that a pass of streaming
heads reads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.attention import (
    additive_mask,
    always,
    grouped_attention,
    weights_and_outputs,
)
from specplan.runtime.models.causal import CausalModel, near
from specplan.runtime.models.kv_cache import KVCache

CHUNK = 256
"""Tokens whose attention is weighed at once."""
Heads = Collection[tuple[int, int]]
"""Key/value heads, each by its layer and its number in it."""


@dataclass(frozen=True)
class StreamingSlots:
    """What streaming heads see of a pass's mask.

    Attributes:
        seen: bool `[B, T, U]`: of all slots these; None where `columns` say it.
        columns: int64 `[B, W]`, slots that hold everything they see; those beyond the mask are
            none. None for all slots.
    """

    seen: Tensor | None = None
    columns: Tensor | None = None

    @classmethod
    def of_text(
        cls, lengths: Sequence[int], sink: int, budget: int, used: int, device: torch.device
    ) -> StreamingSlots:
        """The first tokens, the latest ones before the root, the root and all behind it.

        Args:
            lengths: of the texts, the root included; a token stands in the slot of its position.
            sink: first tokens.
            budget: tokens before the root, first ones included.
            used: slots of the mask; those from the end of the longest text on are of nodes.
            device: of the cache.
        """
        sink = min(sink, budget)
        width = budget - sink + 1 + used - max(lengths)
        starts = torch.tensor([max(n - 1 - budget + sink, sink) for n in lengths], device=device)
        latest = starts[:, None] + torch.arange(width, device=device)
        first = torch.arange(sink, device=device).expand(len(lengths), -1)
        return cls(columns=torch.cat([first, latest], 1))

    def of(self, allowed: Tensor) -> Tensor:
        """The mask of streaming heads, bool `[B, T, W or U]`, from that of all, `[B, T, U]`."""
        if self.columns is None:
            assert self.seen is not None
            return allowed & self.seen
        there = (self.columns < allowed.shape[2])[:, None]
        columns = self.columns.clamp(max=allowed.shape[2] - 1)[:, None]
        return allowed.gather(2, columns.expand(-1, allowed.shape[1], -1)) & there


@dataclass(frozen=True)
class HeadMask:
    """The mask of one layer: heads in a row read alike.

    Attributes:
        runs: heads in a row, and whether they read the whole cache.
        whole: additive, of retrieval heads.
        small: additive, of streaming heads.
        columns: see `StreamingSlots`.
    """

    runs: tuple[tuple[range, bool], ...]
    whole: Tensor
    small: Tensor
    columns: Tensor | None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """See `specplan.runtime.models.attention.OwnAttention`."""
        groups, mixed = query.shape[1] // key.shape[1], []
        for heads, whole in self.runs:
            asking = query[:, heads.start * groups : heads.stop * groups]
            keys, values = (one[:, heads.start : heads.stop] for one in (key, value))
            if not whole and self.columns is not None:
                columns = self.columns.clamp(max=key.shape[2] - 1)[:, None, :, None]
                columns = columns.expand(-1, len(heads), -1, key.shape[3])
                keys, values = keys.gather(2, columns), values.gather(2, columns)
            mask = self.whole if whole else self.small
            mixed.append(grouped_attention(None, asking, keys, values, mask, scaling)[0])
        return torch.cat(mixed, 2)


@dataclass(frozen=True)
class _Weighing:
    """A mask that adds up how much attention goes to what streaming heads do not see.

    Attributes:
        allowed: bool `[T, U]`.
        far: bool `[T, U]`, of these what streaming heads do not see.
        outside: `[H_kv]`, added to: the mean over query heads of the share of each token.
    """

    allowed: Tensor
    far: Tensor
    outside: Tensor

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """See `specplan.runtime.models.attention.OwnAttention`."""
        given, exact = (query, key, value, scaling), self.outside.dtype
        weights, mixed = weights_and_outputs(*given, self.allowed, exact)
        self.outside.add_((weights * self.far).sum((2, 3)).mean(1))
        return mixed


@torch.inference_mode()
def attention_outside(
    model: CausalModel, text: Sequence[int], budget: int, sink: int
) -> tuple[Tensor, int]:
    """How much attention each head pays to what a streaming head does not see of a text.

    Args:
        model: all of whose layers have keys and values.
        text: tokens.
        budget: tokens that a streaming head reads before the one that asks.
        sink: of them, first ones of the text.

    Returns:
        The sum over tokens of the share of their attention, `[layers, H_kv]`, and how many tokens
        there are with something outside.
    """
    size, device, family = len(text), model.device, model.family
    cache, tokens = model.new_cache(1, size), torch.tensor([text], device=device)
    shape = model.num_layers, family.kv_heads
    outside = torch.zeros(shape, dtype=model.logits_dtype, device=device)
    for start in range(0, size, CHUNK):
        places = torch.arange(start, min(start + CHUNK, size), device=device)
        keys = torch.arange(int(places[-1]) + 1, device=device)
        distance = places[:, None] - keys
        hidden = family.embed(tokens[:, places], places[None])
        for layer in range(model.num_layers):
            reach = family.windows[layer] or size
            allowed = (distance >= 0) & (distance < reach)
            far = allowed & (keys >= sink) & (distance > budget - sink)
            weighing = _Weighing(allowed, far, outside[layer])
            writer = cache.writer(places[None], places[None], len(keys))
            span = (layer, layer + 1)
            hidden = family.run(hidden, places[None], always(weighing), writer, span)
    return outside, max(size - 1 - budget, 0)


def runs_of(layer: int, kv_heads: int, retrieval: Heads) -> tuple[tuple[range, bool], ...]:
    """Heads of a layer that stand in a row and read alike, and whether they are of `retrieval`."""
    every = ((whole, list(run)) for whole, run in groupby(
        range(kv_heads), lambda head: (layer, head) in retrieval
    ))  # fmt: skip
    return tuple((range(run[0], run[-1] + 1), whole) for whole, run in every)


def hidden_by_head(
    model: CausalModel,
    retrieval: Heads,
    streaming: StreamingSlots,
    tokens: Tensor,
    positions: Tensor,
    slots: Tensor,
    mask: Tensor,
    cache: KVCache,
    layers: tuple[int, int] | None = None,
    features: Tensor | None = None,
    skips: Skips = NO_SKIPS,
    ahead: int = 0,
) -> Tensor:
    """`CausalModel.hidden` where heads outside of `retrieval` see no more than `streaming` says."""
    positions = positions.clamp(0, model.max_positions - 1)
    family, dtype, groups = model.family, model.dtype, model.groups
    writer = cache.writer(positions, slots, mask.shape[2])
    writer.additions = model.additions(ahead)
    pairs: dict[int | None, tuple[Tensor, Tensor]] = {}

    def both(window: int | None) -> tuple[Tensor, Tensor]:
        if window not in pairs:
            allowed = mask if window is None else mask & near(positions, cache, writer, window)
            every = (allowed, streaming.of(allowed))
            whole, small = (additive_mask(one, groups, dtype) for one in every)
            pairs[window] = whole, small
        return pairs[window]

    hidden = family.embed(tokens, positions) if features is None else features
    for runs, span in groupby(
        range(*(layers or (0, model.num_layers))),
        lambda layer: runs_of(layer, family.kv_heads, retrieval),
    ):
        alike = list(span)

        def masks(window: int | None, runs: tuple[tuple[range, bool], ...] = runs) -> HeadMask:
            return HeadMask(runs, *both(window), streaming.columns)

        hidden = family.run(hidden, positions, masks, writer, (alike[0], alike[-1] + 1), skips)
    return hidden
