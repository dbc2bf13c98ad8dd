"""Slots that are known before a round runs, by the verifier's types.

Where all passes over a cache so far ran nodes of static shapes, the slot of each node and what it
sees are constants, and no keys have to be compared. Where data decides which nodes run, but none of
them has run before, they take the next slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specplan.backends.eager.passes.pass_spec import PassSpec, living_caches, plain_caches
from specplan.backends.eager.state.placements import (
    Fresh,
    Placement,
    Places,
    Resident,
    Way,
)
from specplan.backends.eager.state.slots import Layers
from specplan.ir.ops import Accept, Commit, Emit, Forward, Grow, Refresh
from specplan.ir.plan import Plan
from specplan.ir.types.infer import Step, infer_round
from specplan.ir.types.value_types import ROOT, Lineage, NodesType, PathType, TreeType
from specplan.ir.values import Value


@dataclass
class _Slots:
    """What one cache holds so far.

    Attributes:
        segments: spans of its layers.
        plain: all passes run its layers in one way.
        static: the slot of each node is known.
        taken: slots.
        trees: by family, the slots of its nodes.
        ran: slots that layers have run.
        recorded: slots of nodes whose states a track of the same model has, by track; `ROOT` is
            that of the root.
        tried: nodes that passes may have run; None once that is not known.
        grown: trees whose last level has the children of nodes that it ran.
    """

    segments: tuple[Layers, ...]
    plain: bool
    static: bool = True
    taken: int = 0
    trees: list[tuple[Lineage, dict[int, int]]] = field(default_factory=list)
    ran: dict[Way, set[int]] = field(default_factory=dict)
    recorded: dict[str, set[int]] = field(default_factory=dict)
    tried: list[tuple[Lineage, frozenset[int]]] | None = field(default_factory=list)
    grown: list[Lineage] = field(default_factory=list)

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

    def reached(self, spec: PassSpec) -> set[int]:
        """Slots that all layers of a pass may attend to."""
        slots = set(range(self.taken))
        for span in spec.segments:
            mine = self.ran.get((span, False), set())
            slots &= mine | self.ran.get((span, True), set()) if spec.scratch else mine
        return slots

    def run(self, spec: PassSpec, slots: set[int], rooted: bool) -> None:
        """Note that a pass has run these slots, and the root with them."""
        for span in spec.segments:
            self.ran.setdefault((span, spec.scratch), set()).update(slots)
        for track, _ in spec.keeps:
            self.recorded.setdefault(track, set()).update(slots | ({ROOT} if rooted else set()))

    def states(self, spec: PassSpec, above: Sequence[int]) -> tuple[int, ...] | None:
        """Where a pass reads states of these nodes; None where that is not known."""
        there = self.recorded.get(spec.features or "", set())
        return tuple(above) if spec.own and there.issuperset(above) else None


def places(
    plan: Plan, pass_specs: Mapping[int, PassSpec], segments: Mapping[str, tuple[Layers, ...]]
) -> Places:
    """What is known of slots of drafted nodes in the caches of a plan.

    Args:
        plan: verified.
        pass_specs: by the identity of a forward, what it runs.
        segments: by the name of a cache, spans of its layers.
    """
    plain, living, known = plain_caches(plan), living_caches(plan), Places()
    for item in plan.rounds:
        caches = {
            name: _Slots(spans, name in plain, name not in living)
            for name, spans in segments.items()
        }
        judged: dict[Value, Lineage | None] = {}
        committed: dict[tuple[str, Value], Resident] = {}
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
                        slots.tried = None
                case Grow() as op if op.logits in rows:
                    (tree,) = step.gives
                    if isinstance(tree, TreeType) and tree.lineage is not None:
                        rows[op.logits].grown.append(tree.lineage)
                case Commit() | Refresh() as op if op.state in caches:
                    slots = caches[op.state]
                    lineage = judged.get(op.path) if isinstance(op, Commit) else None
                    if (resident := _resident(slots, lineage)) is not None:
                        known.residents[id(op)] = resident
                        if isinstance(op, Commit):
                            committed[_model_of(plan, op), op.path] = resident
                    slots.static, slots.tried = False, None
                case Commit() as op if (_model_of(plan, op), op.path) in committed:  # of a track
                    known.residents[id(op)] = committed[_model_of(plan, op), op.path]
                case Forward() as op if op.cache is not None:
                    slots = caches[op.cache]
                    fresh = _fresh(slots, step, op)
                    known.new_nodes[id(op)] = known.new_nodes.get(id(op), True) and bool(fresh)
                    place = _place(slots, step, op, pass_specs[id(op)]) if slots.static else None
                    slots.static, fresh = place is not None, fresh if slots.plain else None
                    if (slot := place or fresh) is not None:
                        known.placements[id(op), step.trip] = slot
                    if op.most_levels == 1:
                        rows |= dict.fromkeys(op.results, slots)
    return known


def _model_of(plan: Plan, op: Commit) -> str:
    """Whose keys, values or states a commit makes permanent; "" for nobody's."""
    return str(getattr(plan.state(op.state), "model", ""))


def _fresh(slots: _Slots, step: Step, op: Forward) -> Fresh | None:
    """What is known of nodes that data decides; those that may run are noted."""
    (given, *others) = (step.reads[name] for name in op.nodes)
    nodes, lineage, closed = None, None, True
    if isinstance(given, TreeType):
        nodes, lineage = tuple(range(given.nodes)), given.lineage
    elif isinstance(given, NodesType):
        nodes, lineage, closed = given.possible, given.lineage, given.closed
    if slots.tried is None or others or nodes is None or lineage is None:
        slots.tried = None
        return None
    mine, before = frozenset(nodes) - {ROOT}, [one for one in slots.tried if one[1]]
    slots.tried.append((lineage, mine))
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
    ran = (slots.ran.get((span, False), set()) for span in slots.segments)
    if not all(mine.issuperset(known.values()) for mine in ran):
        return None
    offsets = [known.get(node, -1) for node in range(judged.nodes)]
    there = sum(slot >= 0 for slot in offsets)
    is_chain = judged.parents == tuple(range(-1, judged.nodes - 1))
    return Resident((-1, *offsets), is_chain and offsets[:there] == list(range(there)))


def _place(slots: _Slots, step: Step, op: Forward, spec: PassSpec) -> Placement | None:
    """Slots for the nodes of a pass; None where data decides which they are, or what they see."""
    if step.conditional or len(op.nodes) != 1 or spec.block:
        return None
    (given,) = (step.reads[name] for name in op.nodes)
    indices: Sequence[int] | None
    if isinstance(given, TreeType):
        indices, lineage = (ROOT, *range(given.nodes)), given.lineage
    else:
        assert isinstance(given, NodesType)
        indices, lineage = given.indices, given.lineage
    if indices is None or lineage is None or lineage.parents is None:
        return None
    known = slots.of(lineage)
    if known is None:
        return None
    nodes, before, reached = [n for n in indices if n != ROOT], slots.taken, slots.reached(spec)
    for node in nodes:
        if node not in known:
            known[node] = slots.taken
            slots.taken += 1
    offsets = [known[node] for node in nodes]
    old = sum(offset < before for offset in offsets)
    if len({*offsets}) < len(offsets) or any(offset < before for offset in offsets[old:]):
        return None
    states = slots.states(spec, _above(lineage.parents, known, nodes, spec.shift))
    if spec.features is not None and states is None and nodes:
        return None  # whether a node runs hangs on whether its state is there
    if nodes and not (spec.inside or spec.features is None or spec.scratch):
        return None  # one that does not run leaves nothing behind that could be committed
    lines = [_line(lineage.parents, node) for node in nodes]
    seen = tuple(tuple(sorted(known.get(above, -1) for above in line)) for line in lines)
    if any(not reached.union(offsets).issuperset(line) for line in seen):
        return None
    slots.run(spec, {*offsets}, ROOT in indices)
    ran = {way: frozenset(mine) for way, mine in slots.ran.items()}
    return Placement(before, tuple(offsets), seen, ran, states if nodes else None)


def _above(
    parents: Sequence[int], known: Mapping[int, int], nodes: Sequence[int], shift: int
) -> list[int]:
    """Slots of the nodes so far above some, `ROOT` for the root, -2 for others."""
    above = list(nodes)
    for _ in range(shift):
        above = [parents[node] if node >= 0 else node - 1 for node in above]
    return [node if node == ROOT else known.get(node, -2) for node in above]


def _line(parents: Sequence[int], node: int) -> list[int]:
    """A node and its ancestors, the root left out."""
    line = [node]
    while (above := parents[line[-1]]) != ROOT:
        line.append(above)
    return line
