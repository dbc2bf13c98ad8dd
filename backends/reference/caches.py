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


class CacheUse(NodeSlots):
    """A cache, the model that writes it, and how far it has come.

    Attributes:
        model: the model.
        store: its keys and values.
        lengths: per request, text tokens resident in slots 0..length-1 in all layers.
    """

    def __init__(self, model: CausalModel, store: KVCache, lengths: list[int]) -> None:
        super().__init__(num_layers=model.num_layers)
        self.model = model
        self.store = store
        self.lengths = lengths

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
