"""What a batch keeps per cache: how far the text has come, and which layers ran which nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from torch import Tensor
from torch.nn import functional

from specplan.runtime.kv_cache import KVCache
from specplan.runtime.models import CausalModel

Layers = tuple[int, int]


@dataclass
class CacheUse:
    """A cache, the model that writes it, and how far it has come.

    Nodes go by the round's numbers. Slots of drafted nodes are counted from the text's end, and a
    node's is the same in all layers.

    Attributes:
        model: the model.
        store: its keys and values.
        lengths: per request, text tokens resident in slots 0..length-1 in all layers.
        taken: slots that drafted nodes of this round have.
        offsets: nodes that all requests ran: node -> slot.
        own: the slot of every node, int64 `[B, N]`, -1 for those not run; None while requests
            have run the same nodes. Nodes in it that `offsets` lacks were run by all layers.
        ran: per span of layers that has caught up the text in this round, the nodes that all
            requests ran there.
        scratch: the same of passes whose keys and values are no part of the text's.
    """

    model: CausalModel
    store: KVCache
    lengths: list[int]
    taken: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    own: Tensor | None = None
    ran: dict[Layers, set[int]] = field(default_factory=dict)
    scratch: dict[Layers, set[int]] = field(default_factory=dict)

    def begin_round(self) -> None:
        """Forget the drafted nodes of the last round."""
        self.taken = 0
        self.offsets = {}
        self.own = None
        self.ran, self.scratch = {}, {}

    def place(self, nodes: Iterable[int], layers: Layers, scratch: bool = False) -> None:
        """Note that a span runs nodes; those that no layer has run get the next slots."""
        self.passes(scratch).setdefault(layers, set()).update(nodes)
        for node in nodes:
            if node not in self.offsets:
                self.offsets[node] = self.taken
                self.taken += 1
        if self.own is not None:
            self.own = self._table(0)

    def passes(self, scratch: bool) -> dict[Layers, set[int]]:
        """What was run in this round, for good or as scratch, which the round writes over."""
        return self.scratch if scratch else self.ran

    def place_own(self, nodes: Tensor, highest: int, layers: Layers) -> None:
        """Note that each request runs nodes `[B, W]` of its own, none of which it has run.

        Args:
            nodes: their numbers.
            highest: the highest number that a node of the tree may have.
            layers: the whole stack.
        """
        self.ran.setdefault(layers, set())
        slots = torch.arange(self.taken, self.taken + nodes.shape[1], device=nodes.device)
        self.own = self._table(highest + 1).scatter(1, nodes, slots.expand_as(nodes))
        self.taken += nodes.shape[1]

    def slots_of(self, nodes: Tensor) -> Tensor:
        """Slots of nodes `[B, ...]` that have run, once requests ran nodes of their own."""
        assert self.own is not None
        return self.own.gather(1, nodes.flatten(1)).view_as(nodes)

    @property
    def caught_up(self) -> bool:
        """Whether all layers have caught up the text in this round."""
        return self._whole(self.ran)

    def resident(self, node: int) -> bool:
        """Whether all layers have run a node, one that all requests run, in this round."""
        return self._whole(layers for layers, nodes in self.ran.items() if node in nodes)

    def resident_slots(self, paths: list[list[int]]) -> list[list[int]]:
        """Slots of the nodes of each request's path, up to the first that some layer lacks."""
        if self.own is None:
            return [
                [self.offsets[node] for node in takewhile(self.resident, path)] for path in paths
            ]
        width = max(map(len, paths))
        padded = torch.tensor([path + [0] * (width - len(path)) for path in paths]).to(self.own)
        found = self._table(1 + max(map(max, filter(None, paths)), default=-1)).gather(1, padded)
        return [
            list(takewhile(lambda slot: slot >= 0, slots[: len(path)]))
            for slots, path in zip(found.tolist(), paths, strict=True)
        ]

    def _table(self, width: int) -> Tensor:
        """`own` with at least this width; nodes that all requests ran are in it."""
        device = self.store.positions.device
        table = self.own
        if table is None:
            table = torch.full((len(self.lengths), 0), -1, dtype=torch.int64, device=device)
        width = max([width, *(node + 1 for node in self.offsets)])
        table = functional.pad(table, (0, max(width - table.shape[1], 0)), value=-1)
        if self.offsets:
            nodes = torch.tensor(list(self.offsets), device=device)
            table[:, nodes] = torch.tensor(list(self.offsets.values()), device=device)
        return table

    def _whole(self, spans: Iterable[Layers]) -> bool:
        reached = 0
        for start, stop in sorted(spans):
            if start > reached:
                break
            reached = max(reached, stop)
        return reached >= self.model.num_layers


@dataclass
class TrackUse:
    """Hidden states after a layer, one per slot of the cache whose pass recorded them.

    Attributes:
        store: `[B, S, hidden]`; the last slot is that of dead lanes.
        cache: whose slots they are; None before the first pass.
        held: nodes recorded in this round.
    """

    store: Tensor
    cache: CacheUse | None = None
    held: set[int] = field(default_factory=set)

    def read(self, slots: Tensor) -> Tensor:
        """Hidden states `[B, T, hidden]` of slots `[B, T]`, copied."""
        return self.store.gather(1, slots[:, :, None].expand(-1, -1, self.store.shape[2]))

    def write(self, cache: CacheUse, nodes: Iterable[int], slots: Tensor, hidden: Tensor) -> None:
        """Record the hidden states `[B, T, hidden]` of one pass over a cache."""
        self.cache = cache
        self.held.update(nodes)
        self.store.scatter_(1, slots[:, :, None].expand_as(hidden), hidden)

    def move(self, source: Tensor, destination: Tensor) -> None:
        """Copy slots `[B, M]` to other slots of the same row; reads all, then writes."""
        rows = torch.arange(self.store.shape[0], device=self.store.device)[:, None]
        self.store[rows, destination] = self.store[rows, source]
