"""What one round of a plan asks of a device: its forwards and other ops, each with its size.

Sizes are static, so that they are read off a round once and priced at any batch and context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from specplan.cost_models.op_sizes import forward_nodes, judged_tree, op_size
from specplan.cost_models.round_types import round_types
from specplan.ir.blocks import Skips
from specplan.ir.infer import RoundTypes, Step
from specplan.ir.ops import Accept, Commit, Forward, Lookup, Op, Refresh, Repeat, Update
from specplan.ir.plan import CacheState, Plan, Round, SourceState, TrackState, walk
from specplan.ir.types import NodesType, TreeType

Span = tuple[int, int] | None
_RESHAPING = frozenset({"prune", "graft", "reroot", "adopt", "relabel", "load"})


@dataclass(frozen=True, slots=True)
class ForwardDemand:
    """Forward passes of one kind.

    Attributes:
        op: the op.
        model: whose pass it is.
        cache: name of the cache; "" for none.
        tokens: query tokens per request when nothing but the root is pending.
        pending: query tokens that join them for a request that lags behind.
        drafted_before: tokens that earlier passes of its kind have put into the cache this round.
        budget: most tokens that the cache keeps, None for all.
        rows: rows of logits per request.
        spans: half-open spans of layers, one pass each; (None,) for all layers.
        own_states: the features that it reads are its own model's, not another's.
        conditional: it may be left out.
        lane: what runs beside other lanes; None for the round's own order.
        skips: blocks that it leaves out.
    """

    op: Forward
    model: str
    cache: str
    tokens: int
    pending: int
    drafted_before: int
    budget: float | None
    rows: int
    spans: tuple[Span, ...]
    own_states: bool
    conditional: bool
    lane: str | None
    skips: Skips

    @property
    def width(self) -> int:
        """Most query tokens per request."""
        return self.tokens + self.pending


@dataclass(frozen=True, slots=True)
class OpDemand:
    """An op that is no forward.

    Attributes:
        op: the op, for messages.
        name: how a device knows it, `keyword` or `keyword:variant`.
        width: nodes worked on, per request.
        conditional: it may be left out.
        lane: what runs beside other lanes; None for the round's own order.
        view: the part of a cache that it fills; None for every other op. How much work that is
            depends on the text, see `specplan.cost_models.refreshing`.
    """

    op: Op
    name: str
    width: int
    conditional: bool
    lane: str | None
    view: CacheState | None = None


@dataclass(frozen=True)
class RoundDemands:
    """All that a round asks for.

    Attributes:
        steps: forwards and other ops in program order.
        judged: the trees that accept ops judge, in order.
        not_run: per cache, the judged nodes that the cache does not hold after the round, since
            its model never ran them or nothing but text is kept; None where nodes change their
            numbers within the round.
        early_stops: some loop may stop before its last trip.
        ends: where it is known how many trips requests take in the round's loop: by number of
            trips, the share of requests that have stopped by then, and what a round asks for that
            ends there; empty where all trips are taken to run.
    """

    steps: tuple[ForwardDemand | OpDemand, ...]
    judged: tuple[TreeType, ...]
    not_run: Mapping[str, tuple[int, ...]] | None
    early_stops: bool
    ends: tuple[tuple[float, RoundDemands], ...] = ()


@lru_cache(maxsize=1024)
def round_demands(plan: Plan, item: Round) -> RoundDemands:
    """Read off what a round asks for; remembered for the rounds read last.

    Raises:
        InferenceError: the round is not well typed.
    """
    types = round_types(plan, item)
    reader = _Reader(plan)
    for step in types.steps:
        reader.read(step)
    judged = tuple(judged_tree(step) for step in types.steps if isinstance(step.op, Accept))
    loops = (op for op in walk(item.ops) if isinstance(op, Repeat))
    return RoundDemands(
        tuple(reader.demands),
        judged,
        _not_run(types, judged[-1].nodes if judged else 0),
        any(op.body.until is not None for op in loops),
    )


@dataclass
class _Reader:
    plan: Plan
    demands: list[ForwardDemand | OpDemand] = field(default_factory=list)
    drafted: dict[tuple[str, tuple[Span, ...], str], int] = field(default_factory=dict)

    def read(self, step: Step) -> None:
        if isinstance(step.op, Forward):
            self.demands.append(self.forward(step.op, step))
        else:
            name, width = op_size(step)
            if isinstance(step.op, Lookup | Update):
                name = self.with_source(name, step.op.source)
            view = self.view(step.op)
            if view is not None and view.policy is not None:
                name = f"{name}:{view.policy.name}"
            self.demands.append(OpDemand(step.op, name, width, step.conditional, step.lane, view))

    def view(self, op: Op) -> CacheState | None:
        state = self.plan.state(op.state) if isinstance(op, Refresh) else None
        return state if isinstance(state, CacheState) else None

    def with_source(self, name: str, source: str) -> str:
        """The name of an op on a source, with what kind of source it is; the text has none."""
        state = next((state for state in self.plan.states if state.name == source), None)
        return f"{name}:{state.kind.name}" if isinstance(state, SourceState) else name

    def forward(self, op: Forward, step: Step) -> ForwardDemand:
        root, drafted = forward_nodes(step)
        cache = str(op.cache or "")
        spans: tuple[Span, ...] = tuple((s.start, s.stop) for s in op.layers) or (None,)
        pending = op.pending if isinstance(op.pending, int) else max(op.pending)
        before = self.drafted.get((cache, spans, op.write))
        first = before is None
        catches_up = root or (pending > 0 and first)
        least = drafted + (1 if catches_up else 0)
        most = drafted + max(pending, 1) if catches_up and first else least
        self.drafted[cache, spans, op.write] = (before or 0) + drafted
        return ForwardDemand(
            op=op,
            model=op.model,
            cache=cache,
            tokens=least,
            pending=most - least,
            drafted_before=before or 0,
            budget=self.budget(op),
            rows=0 if op.gives == () else drafted + (1 if root else 0),
            spans=spans,
            own_states=self.own_states(op),
            conditional=step.conditional,
            lane=step.lane,
            skips=Skips.read(op.skip),
        )

    def own_states(self, op: Forward) -> bool:
        state = self.plan.state(op.features) if op.features is not None else None
        return isinstance(state, TrackState) and state.model == op.model

    def budget(self, op: Forward) -> float | None:
        state = self.plan.state(op.cache) if op.cache is not None else None
        if isinstance(state, CacheState) and state.budget is not None:
            return float(state.budget)
        return None


def _not_run(types: RoundTypes, nodes: int) -> Mapping[str, tuple[int, ...]] | None:
    """Nodes keep their numbers while trees only grow."""
    if any(step.op.keyword in _RESHAPING for step in types.steps):
        return None
    ran: dict[str, set[int]] = {}
    for step in types.steps:
        if isinstance(step.op, Forward) and step.op.cache and step.op.write == "exact":
            held_by = ran.setdefault(str(step.op.cache), set())
            for held in step.reads.values():
                if isinstance(held, TreeType):
                    held_by |= set(range(held.nodes))
                elif isinstance(held, NodesType):
                    held_by |= set(held.indices or ())
    for step in types.steps:
        if isinstance(step.op, Commit) and step.op.keep == "text" and step.op.state in ran:
            ran[step.op.state] = set()
    return {cache: tuple(sorted(set(range(nodes)) - held)) for cache, held in ran.items()}
