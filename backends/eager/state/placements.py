"""What is known of slots before a round runs: those of nodes, and what a cache holds at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from specplan.backends.eager.state.slots import Layers

Way = tuple[Layers, bool]
"""A span of layers, and whether they run scratch."""


@dataclass(frozen=True)
class Placement:
    """Slots of the drafted nodes of one pass, counted from the text's end.

    Attributes:
        before: slots that were taken before the pass.
        offsets: of each node; those from `before` on had none before, and are the last ones.
        seen: slots that each node sees, its own among them.
        ran: slots that each span of layers has run, once the pass is done.
        states: of the node above each, whose state it reads, the slot, or `ROOT`; None where no
            pass over this cache recorded them.
    """

    before: int
    offsets: tuple[int, ...]
    seen: tuple[tuple[int, ...], ...]
    ran: Mapping[Way, frozenset[int]]
    states: tuple[int, ...] | None = None

    @cached_property
    def old(self) -> int:
        """Nodes that had a slot before."""
        return sum(offset < self.before for offset in self.offsets)

    @cached_property
    def causal(self) -> bool:
        """Whether each node sees all slots up to its own."""
        return all(
            mine == tuple(range(offset + 1))
            for offset, mine in zip(self.offsets, self.seen, strict=True)
        )


@dataclass(frozen=True)
class Fresh:
    """A pass none of whose nodes had a slot before, whichever they are.

    Attributes:
        reached: whichever they are, their ancestors have run, or run with them.
    """

    reached: bool


@dataclass(frozen=True)
class Resident:
    """What a cache holds of a judged tree as its path is committed.

    Attributes:
        slots: of the tree's columns, counted from the text's end; -1 where there is none.
        in_place: a chain whose first nodes stand in the slots of their positions.
    """

    slots: tuple[int, ...]
    in_place: bool

    @property
    def count(self) -> int:
        """Nodes that are there."""
        return sum(slot >= 0 for slot in self.slots)

    @property
    def numbered(self) -> bool:
        """Whether all nodes are there, in the order of their columns."""
        return self.slots[1:] == tuple(range(len(self.slots) - 1))


@dataclass(frozen=True)
class Places:
    """What is known of slots before a plan runs.

    Attributes:
        placements: by the identity of a forward and its trip, what is known of its nodes' slots.
        residents: by the identity of a commit, slots of the tree whose path it commits.
        new_nodes: by the identity of a forward, whether no pass before it runs the same nodes.
    """

    placements: dict[tuple[int, int], Placement | Fresh] = field(default_factory=dict)
    residents: dict[int, Resident] = field(default_factory=dict)
    new_nodes: dict[int, bool] = field(default_factory=dict)
