"""Keys and values that a batch keeps of models, of text and of drafted nodes.

Text is the truth and caches trail it: each span of layers has a length of its own. What a round
drafts stands behind the text, a slot for each node, known by the node's key.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specplan.backends.ops.commit import commit
from specplan.backends.ops.values import NO_KEY, Nodes, places_of
from specplan.backends.reference.caches import Kept, padded
from specplan.runtime.kv_cache import KVCache
from specplan.runtime.models import CausalModel
from specplan.runtime.retrieval import retrieve

Layers = tuple[int, int]


class Cache:
    """A cache, the model that writes it, and how far it has come.

    Text that a small cache forgets leaves no gap: later tokens stand so many slots further to the
    front.

    Attributes:
        model: the model.
        store: its keys and values.
        segments: spans of layers that the plan runs together, rising.
        lengths: by segment, text tokens of each request that it has taken in.
        scratch: the same with what passes of this round wrote that is no part of the text's.
        kept: of a small cache; None for one that keeps all text.
        forgotten: per request, text tokens that it has forgotten, those behind the first ones.
        of: the cache whose text it is a copy of; None for one of its own.
        way: where all passes run the same layers, whether they are scratch; None elsewhere.
        twins: nodes of one key may have several slots.
        base: tokens of each text behind which drafted nodes stand.
        keys: of the node in each slot behind the text, int64 `[B, M]`.
        there: which slots are the first with their key, bool `[B, M]`.
        ran: by segment and whether it was scratch, which slots hold their nodes, bool `[B, M]`.
    """

    def __init__(
        self,
        model: CausalModel,
        store: KVCache,
        segments: tuple[Layers, ...],
        kept: Kept | None = None,
        of: Cache | None = None,
        way: bool | None = None,
    ) -> None:
        self.way, self.twins = way, False
        self.model, self.store, self.segments = model, store, segments
        self.kept, self.of = kept, of
        self.lengths = {span: [0] * store.batch for span in segments}
        self.forgotten = [0] * store.batch
        self.alive = False
        self.begin([0] * store.batch)

    def begin(self, lengths: Sequence[int]) -> None:
        """Forget drafted nodes; the next ones stand behind texts of these lengths."""
        self.scratch = dict(self.lengths)
        self.base = list(lengths)
        positions = self.store.positions
        self.keys = positions[:, :0]
        self.there = torch.zeros_like(self.keys, dtype=torch.bool)
        self.ran: dict[tuple[Layers, bool], Tensor] = {}
        self.twins = False

    def begin_round(self, lengths: Sequence[int]) -> None:
        """The same, but for nodes that were said to live on."""
        if self.alive and self.base == list(lengths):
            self.scratch = dict(self.lengths)
        else:
            self.begin(lengths)
        self.alive = False

    @property
    def taken(self) -> int:
        """Slots behind the text, M."""
        return self.keys.shape[1]

    @property
    def whole(self) -> list[int]:
        """Text tokens of each request that all layers have taken in."""
        first, *others = self.lengths.values()
        return first if not others else list(map(min, first, *others))

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
            mine = self._ran(span, False)
            if scratch:
                mine = mine | self._ran(span, True)
            found = mine if found is None else found & mine
        return self.there if found is None else found

    def _ran(self, span: Layers, scratch: bool) -> Tensor:
        if self.way is not None and self.way == scratch:
            return self.there
        known = self.ran.get((span, scratch))
        if known is None:
            return torch.zeros_like(self.there)
        more = self.taken - known.shape[1]
        return torch.nn.functional.pad(known, (0, more)) if more else known

    def note(
        self, segments: Sequence[Layers], scratch: bool, offsets: Tensor, live: Tensor
    ) -> None:
        """Note that layers ran nodes `[B, W]`: what was there before is written over."""
        for span in segments if self.way is None else ():
            mine = self._ran(span, scratch).scatter_reduce(1, offsets, live, "amax")
            self.ran[span, scratch] = mine
            if scratch and (span, False) in self.ran:
                over = torch.zeros_like(mine).scatter_reduce(1, offsets, live, "amax")
                self.ran[span, False] = self._ran(span, False) & ~over

    @property
    def shift(self) -> Tensor | int:
        """Slots that text stands further to the front than its positions, int64 `[B, 1]`, or 0."""
        if not any(self.forgotten):
            return 0
        return torch.tensor(self.forgotten, device=self.store.positions.device)[:, None]

    def commit(
        self, keys: Tensor, emitted: Tensor, lengths: Sequence[int], alive: Nodes | None
    ) -> None:
        """Make the prefix of what was emitted that is here permanent, and drop the rest.

        Args:
            keys: of the emitted prefixes of the text, int64 `[B, E]`.
            emitted: which of them there are, bool `[B, E]`.
            lengths: of the texts now.
            alive: nodes that live on behind the new text.
        """
        sources, targets = [], []
        most: list[list[int]] = [[] for _ in lengths]
        for span in self.segments if self.taken else ():
            slots, held = commit(keys, emitted, self.keys, self._ran(span, False))
            found, counts = slots.tolist(), held.sum(1).tolist()
            length = self.lengths[span]
            for row, count in enumerate(counts):
                count = count if length[row] >= self.base[row] else 0
                if count > len(most[row]):
                    most[row] = found[row][:count]
                length[row] += count
        for row, slots_of in enumerate(most):
            start = self.base[row] - self.forgotten[row]
            sources.append([start + slot for slot in slots_of])
            targets.append(list(range(start, start + len(slots_of))))
        nodes = None if alive is None else self._alive(alive, lengths, sources, targets)
        if sources != targets:
            store = self.store
            store.move(*padded(sources, targets, store.trash, store.positions.device))
        self.begin(lengths)
        self.forget()
        if nodes is not None:
            self.alive = True
            self.keys, self.there = nodes
            self.ran = {(span, False): self.there for span in self.segments}

    def _alive(
        self,
        alive: Nodes,
        lengths: Sequence[int],
        sources: list[list[int]],
        targets: list[list[int]],
    ) -> tuple[Tensor, Tensor]:
        """Add the moves of nodes that live on; their keys, and which of them are here."""
        ran = self.ran_by(self.segments, False)
        places, there = places_of(alive.keys, self.keys, ran)
        there = there & alive.live
        slots, held = places.tolist(), there.tolist()
        for row, length in enumerate(lengths):
            old, new = self.base[row] - self.forgotten[row], length - self.forgotten[row]
            for place, slot in enumerate(slots[row]):
                if held[row][place]:
                    sources[row].append(old + slot)
                    targets[row].append(new + place)
        return alive.keys.where(there, NO_KEY), there

    def forget(self) -> None:
        """Keep no more text than the budget allows."""
        if self.kept is None:
            return
        sink, sources, targets = self.kept.sink, [], []
        for row, length in enumerate(self.whole):
            held = length - self.forgotten[row]
            more = max(held - self.kept.budget, 0)
            self.forgotten[row] += more
            stays = range(sink + more, held) if more else range(0)
            sources.append([*stays])
            targets.append([slot - more for slot in stays])
        if any(sources):
            store = self.store
            store.move(*padded(sources, targets, store.trash, store.positions.device))

    def refresh(self) -> None:
        """Copy anew what the other cache holds of the text, as much as the budget allows."""
        assert self.of is not None and self.kept is not None
        whole, sources, targets = self.of.whole, [], []
        for span in self.segments:
            self.lengths[span] = list(whole)
        self.begin(whole)
        if self.kept.retrieved:
            kept, store = self.kept, self.store
            self.forgotten = retrieve(store, self.of.store, whole, kept.budget, kept.retrieved)
            return
        for row, length in enumerate(whole):
            gone = max(length - self.kept.budget, 0)
            self.forgotten[row] = gone
            slots = [*range(min(self.kept.sink, length)), *range(self.kept.sink + gone, length)]
            sources.append(slots)
            targets.append([*range(len(slots))])
        device = self.store.positions.device
        source, _ = padded(sources, targets, self.of.store.trash, device)
        _, target = padded(sources, targets, self.store.trash, device)
        self.store.copy(self.of.store, source, target)
