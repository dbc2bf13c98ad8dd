"""Which slots of a cache the drafted nodes of a round have, and which layers ran them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

Layers = tuple[int, int]


@dataclass(kw_only=True)
class NodeSlots:
    """What a round has run in one cache.

    Nodes go by the round's numbers. Slots of drafted nodes are counted from the text's end, and a
    node's is the same in all layers. All of it but `own` is known without running anything.

    Attributes:
        num_layers: of the model that writes the cache.
        taken: slots that drafted nodes of this round have.
        offsets: nodes that all requests ran: node -> slot.
        own: the slot of every node, int64 `[B, N]`, -1 for those not run; None while requests
            have run the same nodes. Nodes in it that `offsets` lacks were run by all layers.
        ran: per span of layers that has caught up the text in this round, the nodes that all
            requests ran there.
        scratch: the same of passes whose keys and values are no part of the text's.
    """

    num_layers: int
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
            self.own = self.table(0, self.own)

    def passes(self, scratch: bool) -> dict[Layers, set[int]]:
        """What was run in this round, for good or as scratch, which the round writes over."""
        return self.scratch if scratch else self.ran

    def place_own(self, nodes: Tensor, highest: int, layers: Layers, scratch: bool = False) -> None:
        """Note that each request runs nodes `[B, W]` of its own, none of which it has run.

        Args:
            nodes: their numbers.
            highest: the highest number that a node of the tree may have.
            layers: the whole stack.
            scratch: see `passes`.
        """
        self.passes(scratch).setdefault(layers, set())
        slots = torch.arange(self.taken, self.taken + nodes.shape[1], device=nodes.device)
        self.own = self.table(highest + 1, nodes).scatter(1, nodes, slots.expand_as(nodes))
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

    def table(self, width: int, like: Tensor) -> Tensor:
        """`own` this wide at least, nodes that all requests ran in it; `like` is `[B, ...]`."""
        table = self.own
        if table is None:
            table = like.new_full((like.shape[0], 0), -1, dtype=torch.int64)
        width = max([width, *(node + 1 for node in self.offsets)])
        table = functional.pad(table, (0, max(width - table.shape[1], 0)), value=-1)
        if self.offsets:
            nodes = torch.tensor(list(self.offsets), device=like.device)
            table[:, nodes] = torch.tensor(list(self.offsets.values()), device=like.device)
        return table

    def _whole(self, spans: Iterable[Layers]) -> bool:
        reached = 0
        for start, stop in sorted(spans):
            if start > reached:
                break
            reached = max(reached, stop)
        return reached >= self.num_layers
