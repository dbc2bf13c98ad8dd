"""Keys and values that a batch keeps of models, of text and of drafted nodes.

Text is the truth and caches trail it: each span of layers has a length of its own. What a round
drafts stands behind the text, a slot for each node, known by the node's key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from specplan.backends.eager.state.placements import Resident
from specplan.backends.eager.state.rows import exchanged, first_difference, padded
from specplan.backends.eager.state.slots import Layers, NodeSlots
from specplan.backends.ops.tensors.keys import NO_KEY, places_of
from specplan.backends.ops.tensors.values import Nodes, Path
from specplan.runtime.models.cache_parts.observed import ObservedPrompts
from specplan.runtime.models.cache_parts.retrieval import retrieve
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.models.recurrent.states import RecurrentCache


@dataclass(frozen=True)
class Retention:
    """Which text a small cache keeps: its first tokens and the latest ones, or what is asked for.

    Attributes:
        budget: tokens in all.
        sink: first ones of them; for retrieved chunks, where text is read between two refreshes.
        chunk: tokens that it takes in at most, beyond its budget, before it forgets.
        retrieved: tokens of the chunks that it keeps by `runtime/models/cache_parts/retrieval.py`;
            0 for those that keep the first and the latest.
    """

    budget: int
    sink: int
    chunk: int
    retrieved: int = 0


class Cache(NodeSlots):
    """A cache, the model that writes it, and how far it has come.

    Text that a small cache forgets leaves no gap: later tokens stand so many slots further to the
    front.

    Attributes:
        model: the model.
        lengths: by segment, text tokens of each request that it has taken in.
        scratch: the same with what passes of this round wrote that is no part of the text's.
        retention: of a small cache; None for one that keeps all text.
        forgotten: per request, text tokens that it has forgotten, those behind the first ones.
        of: the cache whose text it is a copy of; None for one of its own.
        prompts: what their last tokens attend to; None for a cache that is not filled by that.
        base: tokens of each text behind which drafted nodes stand.
        replays: drafted nodes are never kept, those that were accepted run again.
    """

    prompts: ObservedPrompts | None = None

    def __init__(
        self,
        model: Module,
        store: KVCache,
        segments: tuple[Layers, ...],
        retention: Retention | None = None,
        of: Cache | None = None,
        way: bool | None = None,
        turns: bool | None = None,
    ) -> None:
        super().__init__(store, segments, way, turns)
        self.model = model
        self.retention, self.of = retention, of
        self.lengths = {span: [0] * store.batch for span in segments}
        self.forgotten = [0] * store.batch
        self.alive = self.replays = False
        self.begin([0] * store.batch)

    def begin(self, lengths: Sequence[int]) -> None:
        """Forget drafted nodes; the next ones stand behind texts of these lengths."""
        self.clear()
        self.scratch = dict(self.lengths)
        self.base = list(lengths)
        if isinstance(self.store, RecurrentCache):
            self.store.drafts_from(self.base)

    def begin_round(self, lengths: Sequence[int]) -> None:
        """The same, but for nodes that were said to live on."""
        if self.alive and self.base == list(lengths):
            self.scratch = dict(self.lengths)
        else:
            self.begin(lengths)
        self.alive = False

    def exchange(
        self, stay: Sequence[int], texts: Sequence[int], alike: Sequence[tuple[int, int]]
    ) -> list[int]:
        """Keep rows, and begin new texts; nodes that live on stay.

        Args:
            stay: rows, rising.
            texts: lengths of the new texts.
            alike: of each, a row before and the tokens that its text begins with as well.

        Returns:
            Tokens of each new text that are copied. None of caches that forget text or ask by
            queries, and none of models with recurrent states, which are those of a whole text.
        """
        self.turn(scratch=False)
        every, new = self.lengths.values(), [0] * len(texts)
        if not (self.retention or self.of or self.store.others() or self.store.queries):
            new = [min(count, *(known[row] for known in every)) for row, count in alike]
        begin = {number: alike[number][0] for number, count in enumerate(new) if count}
        self.store.exchange(stay, len(new), begin)
        for span, known in self.lengths.items():
            self.lengths[span] = [known[row] for row in stay] + new
        self.forgotten = [self.forgotten[row] for row in stay] + [0] * len(new)
        base = [self.base[row] for row in stay] + [*texts]
        living = exchanged(self.keys, stay, len(new), NO_KEY), exchanged(self.there, stay, len(new))
        alive, self.aside = self.alive, []
        self._forget()
        self.begin(base)
        self._live_on(living if alive else None)
        return new

    @property
    def whole(self) -> list[int]:
        """Text tokens of each request that all layers have taken in."""
        first, *others = self.lengths.values()
        return first if not others else list(map(min, first, *others))

    def resident(self, segments: Sequence[Layers], scratch: bool) -> Tensor:
        """Text tokens of each request that all of some layers have, int64 `[B, 1]`."""
        lengths = self.scratch if scratch else self.lengths
        known = [lengths[span] for span in segments]
        least = known[0] if len(known) == 1 else list(map(min, *known))
        return torch.tensor(least, device=self.store.positions.device)[:, None]

    @property
    def text_slots(self) -> int:
        """Slots that texts take up, of the request that has most."""
        return max(end - gone for end, gone in zip(self.base, self.forgotten, strict=True))

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
        here: dict[Layers, list[Sequence[int]]] = {}
        for span in self.segments if self.taken and not self.replays else ():
            slots, present = self.prefix(keys, emitted, span)
            counts = present.sum(1).tolist()
            lines = [range(count) for count in counts] if slots is None else slots.tolist()
            here[span] = [line[:count] for line, count in zip(lines, counts, strict=True)]
        self._keep(here, lengths, alive)

    def commit_placed(self, path: Path, lengths: Sequence[int], resident: Resident) -> None:
        """The same of a path whose nodes' slots are known before the round; no tensor is made.

        Args:
            path: what was accepted.
            lengths: of the texts now.
            resident: slots of the judged tree.
        """
        lines: list[Sequence[int]] = []
        for row, (line, count) in enumerate(
            zip(path.nodes.tolist(), path.accepted.tolist(), strict=True)
        ):
            emitted = lengths[row] - self.base[row]
            slots = (resident.slots[node] for node in line[: min(count, emitted)])
            # a loop that ended early has left some nodes out
            lines.append([*takewhile(lambda slot: 0 <= slot < self.taken, slots)])
        self._keep({} if self.replays else dict.fromkeys(self.segments, lines), lengths, None)

    def _keep(
        self,
        here: Mapping[Layers, Sequence[Sequence[int]]],
        lengths: Sequence[int],
        alive: Nodes | None,
    ) -> None:
        """Make slots permanent that follow the text, by segment and request, and drop the rest."""
        self.turn(scratch=False)
        sources, targets = [], []
        most: list[Sequence[int]] = [range(0) for _ in lengths]
        for span, lines in here.items():
            length = self.lengths[span]
            for row, slots in enumerate(lines):
                if length[row] >= self.base[row]:
                    most[row] = max(most[row], slots, key=len)
                    length[row] += len(slots)
        for row, slots in enumerate(most):
            start = self.base[row] - self.forgotten[row]
            sources.append([start + slot for slot in slots])
            targets.append(list(range(start, start + len(slots))))
        nodes = None if alive is None else self._alive(alive, lengths, sources, targets)
        if sources != targets:
            store, device = self.store, self.store.positions.device
            starts = [first_difference(*lines) for lines in zip(sources, targets, strict=True)]
            moved = [line[at:] for line, at in zip(sources, starts, strict=True)]
            goals = [line[at:] for line, at in zip(targets, starts, strict=True)]
            store.move(*padded(moved, goals, store.trash, device))
        self.begin(lengths)
        self.forget()
        self._live_on(nodes)

    def _live_on(self, nodes: tuple[Tensor, Tensor] | None) -> None:
        """Let nodes that ran stand behind the text: their keys, and which of them there are."""
        self.alive = nodes is not None
        if nodes is not None:
            self.keys, self.there = nodes
            self.ran = {(span, False): self.there for span in self.segments}
            if self.taken:  # their slots are no constants
                self.placed, self.in_order = None, False

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
        slots, present = places.tolist(), there.tolist()
        for row, length in enumerate(lengths):
            old, new = self.base[row] - self.forgotten[row], length - self.forgotten[row]
            for place, slot in enumerate(slots[row]):
                if present[row][place]:
                    sources[row].append(old + slot)
                    targets[row].append(new + place)
        return alive.keys.where(there, NO_KEY), there

    def forget(self) -> None:
        """Keep no more text than the budget allows."""
        if self.retention is None:
            return
        sink, sources, targets = self.retention.sink, [], []
        for row, length in enumerate(self.whole):
            size = length - self.forgotten[row]
            more = max(size - self.retention.budget, 0)
            self.forgotten[row] += more
            stays = range(sink + more, size) if more else range(0)
            sources.append([*stays])
            targets.append([slot - more for slot in stays])
        if any(sources):
            store = self.store
            store.move(*padded(sources, targets, store.trash, store.positions.device))

    def refresh(self) -> None:
        """Copy anew what the other cache holds of the text, as much as the budget allows."""
        assert self.of is not None and self.retention is not None
        self.of.turn(scratch=False)
        whole, sources, targets = self.of.whole, [], []
        for span in self.segments:
            self.lengths[span] = list(whole)
        self.begin(whole)
        retention, store = self.retention, self.store
        if self.prompts is not None:
            self.forgotten = self.prompts.refresh(store, self.of.store, whole, retention.budget)
            return
        if retention.retrieved:
            self.forgotten = retrieve(
                store, self.of.store, whole, retention.budget, retention.retrieved
            )
            return
        for row, length in enumerate(whole):
            gone = max(length - retention.budget, 0)
            self.forgotten[row] = gone
            slots = [
                *range(min(retention.sink, length)),
                *range(retention.sink + gone, length),
            ]
            sources.append(slots)
            targets.append([*range(len(slots))])
        device = store.positions.device
        source, _ = padded(sources, targets, self.of.store.trash, device)
        _, target = padded(sources, targets, store.trash, device)
        store.copy(self.of.store, source, target)
