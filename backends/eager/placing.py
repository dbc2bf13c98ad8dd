"""Slots that are known before a round runs: of trees whose shape all requests share.

Where all passes over a cache so far ran nodes of static shapes, the slot of each node and what it
sees are constants, and no keys have to be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specplan.ir.infer import Step, infer_round
from specplan.ir.ops import Accept, Commit, Emit, Forward, Refresh
from specplan.ir.plan import CacheState, Plan, walk_plan
from specplan.ir.types import ROOT, Lineage, NodesType, PathType, TreeType
from specplan.ir.values import Value


@dataclass(frozen=True)
class Placement:
    """Slots of the drafted nodes of one pass, counted from the text's end.

    Attributes:
        before: slots that were taken before the pass.
        offsets: of each node; none of them had one before.
        seen: slots that each node sees, its own among them.
    """

    before: int
    offsets: tuple[int, ...]
    seen: tuple[tuple[int, ...], ...]

    @property
    def causal(self) -> bool:
        """Whether each node sees all slots up to its own."""
        return all(
            mine == tuple(range(offset + 1))
            for offset, mine in zip(self.offsets, self.seen, strict=True)
        )


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


@dataclass
class _Slots:
    """What one cache holds so far: by tree family and node, its slot; and whether all is static."""

    static: bool = True
    taken: int = 0
    trees: list[tuple[Lineage, dict[int, int]]] = field(default_factory=list)

    def of(self, lineage: Lineage) -> dict[int, int] | None:
        """Slots of the nodes of a tree; None where an unlike tree shares some of its nodes."""
        for place, (known, slots) in enumerate(self.trees):
            if lineage.extends(known):
                self.trees[place] = (lineage, slots)
                return slots
            if lineage.common(known) is not None:
                return None
        slots = dict[int, int]()
        self.trees.append((lineage, slots))
        return slots


def placements(plan: Plan) -> tuple[dict[tuple[int, int], Placement], dict[int, Resident]]:
    """Slots where they are known.

    Returns:
        By the identity of a forward and its trip, those of its nodes; and by the identity of a
        commit, those of the tree whose path it commits.
    """
    plain = plain_caches(plan)
    found: dict[tuple[int, int], Placement] = {}
    residents: dict[int, Resident] = {}
    for item in plan.rounds:
        caches: dict[str, _Slots] = {}
        judged: dict[Value, Lineage | None] = {}
        for step in infer_round(plan, item).steps:
            op = step.op
            if isinstance(op, Accept):
                (path,) = step.gives
                assert isinstance(path, PathType)
                judged[op.results[0]] = None if step.conditional else path.lineage
            if isinstance(op, Emit):
                judged[op.results[0]] = judged.get(op.path)
            if isinstance(op, Commit):
                held = _resident(caches.setdefault(op.state, _Slots()), judged.get(op.path))
                if held is not None:
                    residents[id(op)] = held
            if isinstance(op, Commit | Refresh):
                caches.setdefault(op.state, _Slots()).static = False
            if isinstance(op, Forward) and op.cache is not None:
                slots = caches.setdefault(op.cache, _Slots())
                place = _place(slots, step, op) if op.cache in plain else None
                slots.static = place is not None
                if place is not None:
                    found[id(op), step.trip] = place
    return found, residents


def _resident(slots: _Slots, judged: Lineage | None) -> Resident | None:
    """Slots of a judged tree; None where data decides, or where nodes of others may be the same."""
    if not slots.static or judged is None or judged.parents is None:
        return None
    known: dict[int, int] = {}
    for lineage, mine in slots.trees:
        if mine and not judged.related(lineage):
            return None
        known |= mine
    held = [known.get(node, -1) for node in range(judged.nodes)]
    there = sum(slot >= 0 for slot in held)
    is_chain = judged.parents == tuple(range(-1, judged.nodes - 1))
    return Resident((-1, *held), is_chain and held[:there] == list(range(there)))


def plain_caches(plan: Plan) -> dict[str, bool]:
    """Caches whose passes all run one span of layers in one way, and whether that is scratch."""
    found: dict[str, bool] = {}
    ops = [*walk_plan(plan)]
    living = {op.state for op in ops if isinstance(op, Commit) and op.alive is not None}
    for state in plan.states:
        if isinstance(state, CacheState) and state.name not in living:
            passes = [op for op in ops if isinstance(op, Forward) and op.cache == state.name]
            ways = {(op.layers, op.write, op.attend) for op in passes}
            first = passes[0] if len(ways) == 1 else None
            if first is not None and first.attend == "ancestors" and len(first.layers) < 2:
                found[str(state.name)] = first.write == "scratch"
    return found


def _place(slots: _Slots, step: Step, op: Forward) -> Placement | None:
    """New slots for the nodes of a pass, all of which are new; None where data decides."""
    before = slots.taken
    if not slots.static or step.conditional or len(op.nodes) != 1:
        return None
    (given,) = (step.reads[name] for name in op.nodes)
    indices: Mapping[int, int] | tuple[int, ...] | None
    if isinstance(given, TreeType):
        indices, lineage = tuple(range(given.nodes)), given.lineage
    else:
        assert isinstance(given, NodesType)
        indices, lineage = given.indices, given.lineage
    if indices is None or lineage is None or lineage.parents is None:
        return None
    known = slots.of(lineage)
    if known is None:
        return None
    offsets, seen = [], []
    for node in indices:
        if node == ROOT:
            continue
        if node in known:
            return None
        known[node] = slots.taken
        slots.taken += 1
        offsets.append(known[node])
        line, above = [known[node]], lineage.parents[node]
        while above != ROOT:
            if above not in known:
                return None
            line.append(known[above])
            above = lineage.parents[above]
        seen.append(tuple(sorted(line)))
    return Placement(before, tuple(offsets), tuple(seen))
