"""Slots that are known before a round runs.

Where all passes over a cache so far ran nodes of static shapes, the slot of each node and what it
sees are constants, and no keys have to be compared. Where data decides which nodes run, but none of
them has run before, they take the next slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specplan.ir.infer import Step, infer_round
from specplan.ir.ops import Accept, Commit, Emit, Forward, Grow, Refresh
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


@dataclass
class _Slots:
    """What one cache holds so far: by tree family and node, its slot; and whether all is static.

    `ran` are the nodes that passes may have run, None once that is not known; `grown` are trees
    whose last level has the children of nodes that it ran.
    """

    static: bool = True
    ran: list[tuple[Lineage, frozenset[int]]] | None = field(default_factory=list)
    grown: list[Lineage] = field(default_factory=list)
    taken: int = 0
    trees: list[tuple[Lineage, dict[int, int]]] = field(default_factory=list)

    def has_grown(self, lineage: Lineage | None) -> bool:
        """Whether all levels of a tree are such."""
        while lineage is not None and lineage.nodes:
            if not any(lineage is one for one in self.grown):
                return False
            lineage = lineage.above
        return lineage is not None

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


@dataclass(frozen=True)
class Places:
    """What is known of slots before a plan runs.

    Attributes:
        placements: by the identity of a forward and its trip, what is known of its nodes' slots.
        residents: by the identity of a commit, slots of the tree whose path it commits.
    """

    placements: dict[tuple[int, int], Placement | Fresh] = field(default_factory=dict)
    residents: dict[int, Resident] = field(default_factory=dict)


def places(plan: Plan) -> Places:
    """What is known of slots of drafted nodes in the caches of a plan."""
    plain, found = plain_caches(plan), Places()
    for item in plan.rounds:
        caches = {str(s.name): _Slots() for s in plan.states if isinstance(s, CacheState)}
        judged: dict[Value, Lineage | None] = {}
        rows: dict[Value, _Slots] = {}
        for step in infer_round(plan, item).steps:
            match step.op:
                case Accept() as op:
                    (path,) = step.gives
                    assert isinstance(path, PathType)
                    judged[op.results[0]] = None if step.conditional else path.lineage
                case Emit() as op:
                    judged[op.results[0]] = judged.get(op.path)
                    for slots in caches.values():
                        slots.ran = None
                case Grow() as op if op.logits in rows:
                    (tree,) = step.gives
                    if isinstance(tree, TreeType) and tree.lineage is not None:
                        rows[op.logits].grown.append(tree.lineage)
                case Commit() | Refresh() as op if op.state in caches:
                    slots = caches[op.state]
                    held = _resident(slots, judged.get(op.path)) if isinstance(op, Commit) else None
                    if held is not None:
                        found.residents[id(op)] = held
                    slots.static, slots.ran = False, None
                case Forward() as op if op.cache is not None:
                    slots = caches[op.cache]
                    known = _known(slots, step, op) if op.cache in plain else None
                    slots.static = isinstance(known, Placement)
                    if known is not None:
                        found.placements[id(op), step.trip] = known
                    if op.most_levels == 1:
                        rows |= dict.fromkeys(op.results, slots)
    return found


def _known(slots: _Slots, step: Step, op: Forward) -> Placement | Fresh | None:
    fresh, place = _fresh(slots, step, op), _place(slots, step, op)
    return fresh if place is None else place


def _fresh(slots: _Slots, step: Step, op: Forward) -> Fresh | None:
    """What is known of nodes that data decides; those that may run are noted."""
    (given, *others) = (step.reads[name] for name in op.nodes)
    nodes, lineage, closed = None, None, True
    if isinstance(given, TreeType):
        nodes, lineage = tuple(range(given.nodes)), given.lineage
    elif isinstance(given, NodesType):
        nodes = given.among if given.indices is None else given.indices
        lineage, closed = given.lineage, given.closed
    if slots.ran is None or others or nodes is None or lineage is None:
        slots.ran = None
        return None
    mine, before = frozenset(nodes) - {ROOT}, [one for one in slots.ran if one[1]]
    slots.ran.append((lineage, mine))
    if not all(lineage.extends(other) and not mine & ran for other, ran in before):
        return None
    return Fresh((closed and not before) or slots.has_grown(lineage))


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
