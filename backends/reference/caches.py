"""What a batch keeps between rounds: caches and how far they have come, and hidden states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from torch import Tensor

from specplan.backends.reference.slots import NodeSlots
from specplan.runtime.kv_cache import KVCache
from specplan.runtime.models import CausalModel
from specplan.runtime.retrieval import retrieve


@dataclass(frozen=True)
class Kept:
    """Which text a small cache keeps: its first tokens and the latest ones, or what is asked for.

    Attributes:
        budget: tokens in all.
        sink: first ones of them; for retrieved chunks, where text is read between two refreshes.
        chunk: tokens that it takes in at most, beyond its budget, before it forgets.
        retrieved: tokens of the chunks that it keeps by `specplan.runtime.retrieval`; 0 for those
            that keep the first and the latest.
    """

    budget: int
    sink: int
    chunk: int
    retrieved: int = 0


class CacheUse(NodeSlots):
    """A cache, the model that writes it, and how far it has come.

    Text that a small cache forgets leaves no gap: later tokens stand so many slots further to the
    front.

    Attributes:
        model: the model.
        store: its keys and values.
        lengths: per request, text tokens that it has taken in, in all layers.
        kept: of a small cache; None for one that keeps all text.
        forgotten: per request, text tokens that it has forgotten, those behind the first ones.
        of: the cache whose text it is a copy of; None for one of its own.
    """

    def __init__(
        self,
        model: CausalModel,
        store: KVCache,
        kept: Kept | None = None,
        of: CacheUse | None = None,
    ) -> None:
        super().__init__(num_layers=model.num_layers)
        self.model = model
        self.store = store
        self.lengths = [0] * store.batch
        self.forgotten = [0] * store.batch
        self.kept, self.of = kept, of

    @property
    def shift(self) -> Tensor | int:
        """Slots that text stands further to the front than its positions, int64 `[B, 1]`, or 0."""
        if not any(self.forgotten):
            return 0
        return torch.tensor(self.forgotten, device=self.store.positions.device)[:, None]

    def forget(self) -> None:
        """Keep no more text than the budget allows."""
        if self.kept is None:
            return
        sink, sources, targets = self.kept.sink, [], []
        for row, length in enumerate(self.lengths):
            held = length - self.forgotten[row]
            more = max(held - self.kept.budget, 0)
            self.forgotten[row] += more
            stays = range(sink + more, held) if more else range(0)
            sources.append([*stays])
            targets.append([slot - more for slot in stays])
        if any(sources):
            self.store.move(
                *padded(sources, targets, self.store.trash, self.store.positions.device)
            )

    def refresh(self) -> None:
        """Copy anew what the other cache holds of the text, as much as the budget allows."""
        assert self.of is not None and self.kept is not None
        whole, sources, targets = self.of, [], []
        if self.kept.retrieved:
            self.lengths, kept = list(whole.lengths), self.kept
            self.forgotten = retrieve(
                self.store, whole.store, self.lengths, kept.budget, kept.retrieved
            )
            return
        for row, length in enumerate(whole.lengths):
            gone = max(length - self.kept.budget, 0)
            self.forgotten[row] = gone
            slots = [*range(min(self.kept.sink, length)), *range(self.kept.sink + gone, length)]
            sources.append(slots)
            targets.append([*range(len(slots))])
        self.lengths = list(whole.lengths)
        device = self.store.positions.device
        source, _ = padded(sources, targets, whole.store.trash, device)
        _, target = padded(sources, targets, self.store.trash, device)
        self.store.copy(whole.store, source, target)

    def resident_slots(self, paths: list[list[int]]) -> list[list[int]]:
        """Slots of the nodes of each request's path, up to the first that some layer lacks."""
        if self.own is None:
            return [
                [self.offsets[node] for node in takewhile(self.resident, path)] for path in paths
            ]
        width = max(map(len, paths))
        padded = torch.tensor([path + [0] * (width - len(path)) for path in paths]).to(self.own)
        widest = 1 + max(map(max, filter(None, paths)), default=-1)
        found = self.table(widest, self.own).gather(1, padded)
        return [
            list(takewhile(lambda slot: slot >= 0, slots[: len(path)]))
            for slots, path in zip(found.tolist(), paths, strict=True)
        ]


def padded(
    sources: list[list[int]], targets: list[list[int]], trash: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Slots of each request as int64 `[B, M]`, filled up with the trash slot."""
    width = max(len(row) for row in sources)

    def filled(rows: list[list[int]]) -> Tensor:
        even = [row + [trash] * (width - len(row)) for row in rows]
        return torch.tensor(even, dtype=torch.int64, device=device)

    return filled(sources), filled(targets)


@dataclass
class TrackUse:
    """Hidden states after a layer, one per slot of the cache whose pass recorded them.

    Attributes:
        store: `[B, S, hidden]`; the last slot is that of dead lanes.
        cache: whose slots they are; None before the first pass.
        held: nodes recorded in this round.
    """

    store: Tensor
    cache: NodeSlots | None = None
    held: set[int] = field(default_factory=set)

    @property
    def trash(self) -> int:
        """The slot of dead lanes."""
        return self.store.shape[1] - 1

    def read(self, slots: Tensor) -> Tensor:
        """Hidden states `[B, T, hidden]` of slots `[B, T]`, copied."""
        return self.store.gather(1, slots[:, :, None].expand(-1, -1, self.store.shape[2]))

    def write(self, cache: NodeSlots, nodes: Iterable[int], slots: Tensor, hidden: Tensor) -> None:
        """Record the hidden states `[B, T, hidden]` of one pass over a cache."""
        self.cache = cache
        self.held.update(nodes)
        self.store.scatter_(1, slots[:, :, None].expand_as(hidden), hidden)

    def move(self, source: Tensor, destination: Tensor) -> None:
        """Copy slots `[B, M]` to other slots of the same row; reads all, then writes."""
        rows = torch.arange(self.store.shape[0], device=self.store.device)[:, None]
        self.store[rows, destination] = self.store[rows, source]
