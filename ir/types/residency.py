"""Which drafted nodes and which text a cache holds in each layer, as a round goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from specplan.ir.op import Step
from specplan.ir.ops import Forward
from specplan.ir.plan import CacheState, Plan, Round, TrackState, walk, walk_plan
from specplan.ir.types.value_types import ROOT, Lineage, NodesType, TreeType
from specplan.ir.values import Span, State

MOST_TREES = 64
"""Trees, none of which extends another, that one cache serves in a round."""
Layers = tuple[Span, ...]


def covers(ran: Layers, wanted: Layers) -> bool:
    """True when the spans of layers that ran hold all wanted ones; no spans are all layers."""
    if not ran:
        return True
    return bool(wanted) and all(
        any(span.start <= part.start and part.stop <= span.stop for span in ran) for part in wanted
    )


@dataclass
class _Run:
    """Nodes of one tree that forwards of one kind computed; `nodes` None where data decides."""

    layers: Layers
    exact: bool
    conditional: bool
    lineage: Lineage
    nodes: set[int] | None = field(default_factory=set)

    def takes(self, step: Step, op: Forward, lineage: Lineage) -> bool:
        """True when what the step computes belongs here."""
        kind = (op.layers, op.write == "exact", step.conditional)
        alike = kind == (self.layers, self.exact, self.conditional)
        return alike and lineage.related(self.lineage)


class CacheRuns:
    """Nodes that forwards have computed in one cache so far in a round."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._caught: list[Layers] = []

    @property
    def crowded(self) -> bool:
        """Whether the cache serves more unrelated trees than are tracked here."""
        return len(self._runs) > MOST_TREES

    def caught_up(self, layers: Layers) -> bool:
        """True when some forward has caught the text up in these layers."""
        return any(covers(ran, layers) for ran in self._caught)

    def serves_other_trees(self, lineage: Lineage) -> bool:
        """True when some forward ran on a tree that neither extends this one nor the reverse."""
        return any(not lineage.related(run.lineage) for run in self._runs)

    def only_text(self) -> bool:
        """True when no drafted node was computed for good."""
        return all(run.nodes is not None and run.nodes <= {ROOT} for run in self._runs if run.exact)

    def add(self, step: Step, op: Forward) -> None:
        """Record what a forward computes."""
        if not self.caught_up(op.layers):
            self._caught.append(op.layers)
        for lineage, nodes in operands_of(step, op):
            run = next((run for run in self._runs if run.takes(step, op, lineage)), None)
            if run is None:
                run = _Run(op.layers, op.write == "exact", step.conditional, lineage)
                self._runs.append(run)
            if lineage.extends(run.lineage):
                run.lineage = lineage
            if nodes is None or run.nodes is None:
                run.nodes = None
            else:
                run.nodes.update(nodes)

    def present(
        self, lineage: Lineage, layers: Layers, *, exact: bool, conditional: bool = False
    ) -> set[int] | None:
        """Nodes of a tree that these layers hold, the root left out; None where data decides.

        A tree that was reshaped (pruned, adopted, ...) keeps nodes of the one it came from, but
        which ones is not known here either.

        Args:
            lineage: the tree.
            layers: all of them must hold a node.
            exact: leave out what was written as scratch.
            conditional: count what was computed inside a `when`.
        """
        nodes_there: set[int] = set()
        for run in self._runs:
            if (exact and not run.exact) or (run.conditional and not conditional):
                continue
            if not covers(run.layers, layers):
                continue
            shared = lineage.common(run.lineage)
            if shared is None or run.nodes is None:
                return None
            nodes_there.update(node for node in run.nodes if ROOT < node < shared.nodes)
        return nodes_there


def operands_of(step: Step, op: Forward) -> Iterator[tuple[Lineage, Iterable[int] | None]]:
    """Tree and nodes of each operand of a forward; nodes are None where data decides."""
    for name in op.nodes:
        type_ = step.reads[name]
        if isinstance(type_, TreeType) and type_.lineage is not None:
            yield type_.lineage, range(ROOT, type_.nodes)
        elif isinstance(type_, NodesType) and type_.lineage is not None:
            yield type_.lineage, type_.indices


def stack_ends(plan: Plan, item: Round) -> dict[str, int]:
    """Per model, the last layer that any forward names, which is taken as the end of its stack."""
    ends: dict[str, int] = {}
    for op in chain(walk_plan(plan), walk(item.ops)):
        if isinstance(op, Forward):
            stops = [span.stop for span in op.layers]
            ends[op.model] = max([ends.get(op.model, 0), *stops])
    return ends


def judges(plan: Plan) -> Iterator[Forward]:
    """Forwards that give scores."""
    for op in walk_plan(plan):
        if isinstance(op, Forward) and "score" in (op.gives or ()):
            yield op


def reads_in_chunks(plan: Plan) -> bool:
    """Whether a plan reads prompts in chunks along with the requests that decode."""
    return any(isinstance(op, Forward) and op.most is not None for op in walk_plan(plan))


def readings(plan: Plan, cache: CacheState) -> tuple[Forward, ...]:
    """Forwards that read text through the whole stack of a cache's model, with `write=exact`.

    They record the tracks that the rounds' own passes record, one forward for each.
    """
    recorded = dict.fromkeys(
        op.keep
        for op in walk_plan(plan)
        if isinstance(op, Forward) and op.cache == cache.name and op.write == "exact"
    )
    tracks = [state for state in plan.states if isinstance(state, TrackState)]
    mine = (track.name for track in tracks if track.model == cache.model)
    own: list[State | None] = [name for name in mine if name in recorded]
    return tuple(
        Forward(model=cache.model, nodes=(), cache=cache.name, keep=keep) for keep in own or [None]
    )
