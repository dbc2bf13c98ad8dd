"""Drafted nodes by their slots in a cache, behind the text; tensors alone, nothing on the host."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specplan.backends.ops.forward import attention_mask
from specplan.backends.ops.keys import places_of
from specplan.runtime.attention import PrefixMask
from specplan.runtime.kv_cache import KVCache
from specplan.runtime.masks import marked

Layers = tuple[int, int]


class NodeSlots:
    """Which node stands in which slot behind the text, and which layers have run it.

    Attributes:
        store: keys and values.
        segments: spans of layers that the plan runs together, rising.
        way: where all passes run the same layers, whether they are scratch; None elsewhere.
        twins: nodes of one key may have several slots.
        in_order: slot i holds the one node at depth i + 1 that has run.
        by_place: all nodes stand where placements say.
        keys: of the node in each slot behind the text, int64 `[B, M]`.
        there: which slots are the first with their key, bool `[B, M]`.
        ran: by segment and whether it was scratch, which slots hold their nodes, bool `[B, M]`.
    """

    def __init__(
        self, store: KVCache, segments: tuple[Layers, ...] = ((0, 0),), way: bool | None = None
    ) -> None:
        self.store, self.segments, self.way = store, segments, way
        self.clear()

    def clear(self) -> None:
        """Forget all nodes."""
        self.keys = self.store.positions[:, :0]
        self.there = torch.zeros_like(self.keys, dtype=torch.bool)
        self.ran: dict[tuple[Layers, bool], Tensor] = {}
        self.twins, self.in_order, self.by_place = False, True, True

    @property
    def taken(self) -> int:
        """Slots behind the text, M."""
        return self.keys.shape[1]

    @property
    def shift(self) -> Tensor | int:
        """Slots that text stands further to the front than its positions, int64 `[B, 1]`, or 0."""
        return 0

    @property
    def text_slots(self) -> int:
        """Slots that texts take up, of the request that has most."""
        return 0

    def resident(self, segments: Sequence[Layers], scratch: bool) -> Tensor:
        """Text tokens of each request that all of some layers have, int64 `[B, 1]`."""
        return torch.zeros_like(self.store.positions[:, :1])

    def mask(
        self,
        slots: Tensor,
        texts: int,
        ends: Tensor,
        offsets: Tensor | None,
        seen: Tensor | None,
        used: int,
    ) -> Tensor | PrefixMask:
        """What the columns of a pass see of the first `used` slots; see `attention_mask`.

        `offsets` are slots of the nodes counted from the text's end, `[W]` or `[B, W]`.
        """
        return attention_mask(slots, texts, ends, seen, torch.arange(used, device=slots.device))

    def add(self, keys: Tensor, live: Tensor, *, in_order: bool, twins: bool) -> None:
        """Give nodes `[B, W]`, which had none before, the next slots; `twins` may be among them."""
        taken = self.taken
        self.keys = torch.cat([self.keys, keys], 1) if taken else keys
        self.there = torch.cat([self.there, live], 1) if taken else live
        self.twins, self.in_order = self.twins or twins, self.in_order and in_order

    def single(self) -> None:
        """Leave one slot to each key."""
        if self.twins:
            places, _ = places_of(self.keys, self.keys, self.there)
            own = torch.arange(self.taken, device=places.device)
            self.there, self.twins = self.there & (places == own), False

    def ran_by(self, segments: Sequence[Layers], scratch: bool) -> Tensor:
        """Slots whose nodes layers can attend to, bool `[B, M]`; scratch passes see all."""
        found: Tensor | None = None
        for span in segments:
            mine = self.ran_in(span, False)
            if scratch:
                mine = mine | self.ran_in(span, True)
            found = mine if found is None else found & mine
        return self.there if found is None else found

    def ran_in(self, span: Layers, scratch: bool) -> Tensor:
        """Slots whose nodes a span has run so, bool `[B, M]`."""
        if self.way is not None and self.way == scratch:
            return self.there
        known = self.ran.get((span, scratch))
        if known is None:
            return torch.zeros_like(self.there)
        more = torch.zeros_like(self.there[:, known.shape[1] :])
        return torch.cat([known, more], 1) if more.shape[1] else known

    def note(
        self, segments: Sequence[Layers], scratch: bool, offsets: Tensor, live: Tensor
    ) -> None:
        """Note that layers ran nodes `[B, W]`: what was there before is written over."""
        for span in segments if self.way is None else ():
            mine = marked(offsets, live, self.taken)
            self.ran[span, scratch] = self.ran_in(span, scratch) | mine
            if scratch and (span, False) in self.ran:
                self.ran[span, False] = self.ran_in(span, False) & ~mine
