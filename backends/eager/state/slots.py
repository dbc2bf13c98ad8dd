"""Drafted nodes by their slots in a cache, behind the text; tensors alone, nothing on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from specplan.backends.ops.commit import commit
from specplan.backends.ops.forward import attention_mask
from specplan.backends.ops.tensors.keys import places_of
from specplan.runtime.masks import marked, prefix
from specplan.runtime.models.attention import PrefixMask, RowMask
from specplan.runtime.models.kv_cache import KVCache

if TYPE_CHECKING:
    from specplan.backends.eager.passes.pass_spec import PassSpec

Layers = tuple[int, int]
"""A half-open span of layers."""


def overlaps(span: Layers, layers: Any) -> bool:
    """Whether a span and an entry `start:stop` of a plan have layers in common."""
    return bool(span[0] < layers.stop and span[1] > layers.start)


class Aside(NamedTuple):
    """What slots contained before scratch wrote them."""

    slots: Tensor
    layers: list[int]
    content: list[Tensor]


class NodeSlots:
    """Which node stands in which slot behind the text, and which layers have run it.

    Attributes:
        store: keys and values.
        segments: spans of layers that the plan runs together, rising.
        way: where all passes run the same layers, whether they are scratch; None elsewhere.
        twins: nodes of one key may have several slots.
        in_order: slot i holds the one node at depth i + 1 that has run.
        keys: of the node in each slot behind the text, int64 `[B, M]`.
        there: which slots are the first with their key, bool `[B, M]`.
        placed: by segment and whether it was scratch, slots that it has run, where all slots so far
            were known before the round; None elsewhere.
        ran: the same elsewhere: which slots hold their nodes, bool `[B, M]`.
        turns: where scratch follows passes for good in some round, whether these come again; None
            where it does not.
        scratched: slots hold what scratch wrote, the latest pass.
        aside: slots and layers that scratch has written, with what they hold for the other way.
    """

    def __init__(
        self,
        store: KVCache,
        segments: tuple[Layers, ...] = ((0, 0),),
        way: bool | None = None,
        turns: bool | None = None,
    ) -> None:
        self.store, self.segments, self.way, self.turns = store, segments, way, turns
        self.scratched, self.aside = False, list[Aside]()
        self._forget()

    def enter(self, spec: PassSpec, slots: Tensor, *, fresh: bool = False) -> None:
        """A pass is about to write slots `[B, W]`; `fresh` ones hold nothing yet.

        What passes for good wrote is there for the next one, whatever scratch writes in between.
        Where none comes, nobody asks what fresh slots hold.
        """
        if self.turns is not None and self.way is None:
            self.turn(spec.scratch)
            if spec.scratch and (self.turns or not fresh):
                layers = [layer for span in spec.segments for layer in range(*span)]
                self.aside.append(Aside(slots, layers, self.store.swap(slots, layers, ())))

    def turn(self, scratch: bool) -> None:
        """Let slots hold what scratch wrote, or what passes for good did."""
        if scratch != self.scratched:
            for one in self.aside if scratch else reversed(self.aside):
                one.content[:] = self.store.swap(one.slots, one.layers, one.content)
        self.scratched = scratch

    def clear(self) -> None:
        """Forget all nodes, and what scratch wrote."""
        if self.taken:
            self._forget()
        if self.aside:
            self.turn(scratch=False)
            self.aside = []

    def _forget(self) -> None:
        self.keys = self.store.positions[:, :0]
        self.there = torch.zeros_like(self.keys, dtype=torch.bool)
        self.placed: Mapping[tuple[Layers, bool], frozenset[int]] | None = {}
        self.ran: dict[tuple[Layers, bool], Tensor] = {}
        self.twins, self.in_order = False, True

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
        row: Tensor | None = None,
    ) -> Tensor | PrefixMask | RowMask:
        """What the columns of a pass see of the first `used` slots; see `attention_mask`.

        `offsets` are slots of the nodes counted from the text's end, `[W]` or `[B, W]`; `row` has
        the positions of columns that stand in neighbouring slots, int64 `[B, T]`.
        """
        return attention_mask(slots, texts, ends, seen, torch.arange(used, device=slots.device))

    def add(self, keys: Tensor, live: Tensor, *, twins: bool) -> None:
        """Give nodes `[B, W]`, which had none before, the next slots; `twins` may be among them."""
        taken = self.taken
        self.keys = torch.cat([self.keys, keys], 1) if taken else keys
        self.there = torch.cat([self.there, live], 1) if taken else live
        self.twins = self.twins or twins

    def compare(self) -> None:
        """Leave one slot to each key: from now on nodes are found by their keys."""
        if self.twins:
            places, _ = places_of(self.keys, self.keys, self.there)
            own = torch.arange(self.taken, device=places.device)
            self.there, self.twins = self.there & (places == own), False
        if self.placed is not None:
            self.ran = {way: self.ran_in(*way) for way in self.placed}
            self.placed, self.in_order = None, False

    def ran_by(self, segments: Sequence[Layers], scratch: bool) -> Tensor:
        """Slots whose nodes layers can attend to, bool `[B, M]`; scratch passes see all."""
        common: Tensor | None = None
        for span in segments:
            mine = self.ran_in(span, False)
            if scratch:
                mine = mine | self.ran_in(span, True)
            common = mine if common is None else common & mine
        return self.there if common is None else common

    def ran_in(self, span: Layers, scratch: bool) -> Tensor:
        """Slots whose nodes a span has run so, bool `[B, M]`."""
        if self.way is not None and self.way == scratch:
            return self.there
        if self.placed is not None:
            slots = self.placed.get((span, scratch), ())
            if len(slots) == self.taken:
                return self.there
            flags = [slot in slots for slot in range(self.taken)]
            return self.there & torch.tensor(flags, device=self.there.device)
        known = self.ran.get((span, scratch))
        if known is None:
            return torch.zeros_like(self.there)
        more = torch.zeros_like(self.there[:, known.shape[1] :])
        return torch.cat([known, more], 1) if more.shape[1] else known

    def prefix(self, keys: Tensor, emitted: Tensor, span: Layers) -> tuple[Tensor | None, Tensor]:
        """How much of what was emitted is here for good.

        Args:
            keys: of the emitted prefixes of the text, int64 `[B, E]`.
            emitted: which of them there are, bool `[B, E]`.
            span: of layers.

        Returns:
            Slots counted from the text's end, int64 `[B, E]`, None where they are in place; and
            which are here, a prefix, bool `[B, E]` or less wide.
        """
        ran = self.ran_in(span, False)
        if not self.in_order:
            return commit(keys, emitted, self.keys, ran)
        width = min(self.taken, keys.shape[1])
        here = keys[:, :width] == self.keys[:, :width]
        return None, prefix(here & ran[:, :width] & emitted[:, :width])

    def note(
        self, segments: Sequence[Layers], scratch: bool, offsets: Tensor, live: Tensor
    ) -> None:
        """Note that layers ran nodes `[B, W]`."""
        for span in segments if self.way is None else ():
            mine = marked(offsets, live, self.taken)
            self.ran[span, scratch] = self.ran_in(span, scratch) | mine
