"""What a batch keeps per cache: how far the text has come, and which layers ran which nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specplan.runtime.kv_cache import KVCache
from specplan.runtime.models import CausalModel

Layers = tuple[int, int]


@dataclass
class CacheUse:
    """A cache, the model that writes it, and how far it has come.

    Attributes:
        model: the model.
        store: its keys and values.
        lengths: per request, text tokens resident in slots 0..length-1 in all layers.
        offsets: drafted nodes of this round: node -> slot, counted from the text's end; the same
            slot in all layers.
        ran: per span of layers that has caught up the text in this round, the nodes it has run.
    """

    model: CausalModel
    store: KVCache
    lengths: list[int]
    offsets: dict[int, int] = field(default_factory=dict)
    ran: dict[Layers, set[int]] = field(default_factory=dict)

    def begin_round(self) -> None:
        """Forget the drafted nodes of the last round."""
        self.offsets = {}
        self.ran = {}

    def place(self, nodes: Iterable[int], layers: Layers) -> None:
        """Note that a span runs nodes; those that no layer has run get the next slots."""
        for node in nodes:
            self.offsets.setdefault(node, len(self.offsets))
        self.ran.setdefault(layers, set()).update(nodes)

    @property
    def caught_up(self) -> bool:
        """Whether all layers have caught up the text in this round."""
        return self._whole(self.ran)

    def resident(self, node: int) -> bool:
        """Whether all layers have run a node in this round."""
        return self._whole(layers for layers, nodes in self.ran.items() if node in nodes)

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
