"""Slots that are known before a round runs: of trees whose shape all requests share.

Where all passes over a cache so far ran nodes of static shapes, the slot of each node and what it
sees are constants, and no keys have to be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from specplan.backends.eager.passes import Stretch
from specplan.backends.eager.slots import Layers
from specplan.ir.infer import Step, infer_round
from specplan.ir.ops import Commit, Forward, Refresh
from specplan.ir.plan import CacheState, Plan, walk_plan
from specplan.ir.types import ROOT, Lineage, NodesType, TreeType
from specplan.ir.values import State

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
    """

    before: int
    offsets: tuple[int, ...]
    seen: tuple[tuple[int, ...], ...]
    ran: Mapping[Way, frozenset[int]]

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


@dataclass
class _Slots:
    """What one cache holds so far, where all of it is static.

    Attributes:
        static: it is.
        taken: slots.
        trees: by family, the slots of its nodes.
        ran: slots that layers have run.
        kept: slots of nodes whose states a track of the same model has, by track.
    """

    static: bool = True
    taken: int = 0
    trees: list[tuple[Lineage, dict[int, int]]] = field(default_factory=list)
    ran: dict[Way, set[int]] = field(default_factory=dict)
    kept: dict[State, set[int]] = field(default_factory=dict)

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

    def reached(self, stretch: Stretch) -> set[int]:
        """Slots that all layers of a pass may attend to."""
        found = set(range(self.taken))
        for span in stretch.segments:
            mine = self.ran.get((span, False), set())
            found &= mine | self.ran.get((span, True), set()) if stretch.scratch else mine
        return found

    def run(self, stretch: Stretch, slots: set[int]) -> None:
        """Note that a pass has run these slots."""
        for span in stretch.segments:
            self.ran.setdefault((span, stretch.scratch), set()).update(slots)
        for track, _ in stretch.keeps:
            self.kept.setdefault(track, set()).update(slots)


def placements(plan: Plan, stretches: Mapping[int, Stretch]) -> dict[tuple[int, int], Placement]:
    """By the identity of a forward and its trip, slots where they are known."""
    living = {op.state for op in walk_plan(plan) if isinstance(op, Commit) and op.alive is not None}
    found: dict[tuple[int, int], Placement] = {}
    for item in plan.rounds:
        caches: dict[State, _Slots] = {}
        for step in infer_round(plan, item).steps:
            op = step.op
            if isinstance(op, Commit | Refresh):
                caches.setdefault(op.state, _Slots()).static = False
            if isinstance(op, Forward) and op.cache is not None:
                slots = caches.setdefault(op.cache, _Slots())
                place = None
                if slots.static and op.cache not in living:
                    place = _place(slots, step, op, stretches[id(op)])
                slots.static = place is not None
                if place is not None:
                    found[id(op), step.trip] = place
    return found


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


def turning_caches(plan: Plan) -> Iterator[str]:
    """Caches that scratch writes after passes for good in some round."""
    for item in plan.rounds:
        good = set[str | None]()
        for step in infer_round(plan, item).steps:
            if isinstance(step.op, Forward) and step.op.write == "exact":
                good.add(step.op.cache)
            elif isinstance(step.op, Forward) and step.op.cache in good:
                yield str(step.op.cache)


def _place(slots: _Slots, step: Step, op: Forward, stretch: Stretch) -> Placement | None:
    """Slots for the nodes of a pass; None where data decides which they are, or what they see."""
    if step.conditional or len(op.nodes) != 1 or stretch.block:
        return None
    (given,) = (step.reads[name] for name in op.nodes)
    indices: Sequence[int] | None
    if isinstance(given, TreeType):
        indices, lineage = range(given.nodes), given.lineage
    else:
        assert isinstance(given, NodesType)
        indices, lineage = given.indices, given.lineage
    if indices is None or lineage is None or lineage.parents is None:
        return None
    known = slots.of(lineage)
    if known is None:
        return None
    nodes, before, reached = [n for n in indices if n != ROOT], slots.taken, slots.reached(stretch)
    for node in nodes:
        if node not in known:
            known[node] = slots.taken
            slots.taken += 1
    offsets = [known[node] for node in nodes]
    old = sum(offset < before for offset in offsets)
    if len({*offsets}) < len(offsets) or any(offset < before for offset in offsets[old:]):
        return None
    good = set[int]().union(*(slots.ran.get((span, False), ()) for span in stretch.segments))
    if stretch.scratch and not good.isdisjoint(offsets):
        return None  # whether what they held comes back is the cache's affair
    if stretch.features is not None and not (
        stretch.inside and slots.kept.get(stretch.features, set()).issuperset(offsets)
    ):
        return None  # whether a node runs hangs on whether its state is there
    seen = []
    for node in nodes:
        line, above = [known[node]], lineage.parents[node]
        while above != ROOT:
            slot = known.get(above)
            if slot is None or not (slot in reached or slot in offsets):
                return None
            line.append(slot)
            above = lineage.parents[above]
        seen.append(tuple(sorted(line)))
    slots.run(stretch, {*offsets})
    ran = {way: frozenset(mine) for way, mine in slots.ran.items()}
    return Placement(before, tuple(offsets), tuple(seen), ran)
