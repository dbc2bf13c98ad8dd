"""What one round of a plan asks of a device: its forwards and other ops, each with its size.

Sizes are static, so that they are read off a round once and priced at any batch and context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from specplan.cost_models.intervals import Interval
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.blocks import Skips, one_stack
from specplan.ir.needs import Pass, Work
from specplan.ir.op import Op
from specplan.ir.plan import CacheState, Plan, Round, walk
from specplan.ir.rules.pending import in_one_pass
from specplan.ir.types.infer import RoundTypes, Step
from specplan.ir.types.value_types import NodesType, TreeType
from specplan.ir.values import State

Span = tuple[int, int] | None


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
        budget: most tokens that the cache keeps, or that heads read of it; None for all.
        whole_heads: key/value heads that read the whole cache in any case.
        rows: rows of logits per request.
        spans: half-open spans of layers that run; (None,) for all layers.
        own_states: the features that it reads are its own model's, not another's.
        conditional: it may be left out.
        lane: what runs beside other lanes; None for the round's own order.
        skips: blocks that it leaves out.
        region: number of the innermost `when` that it stands in, in the order of the round.
        replays: its cache stores one recurrent state, from which it runs accepted tokens again.
    """

    op: Op
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
    region: int | None = None
    whole_heads: int = 0
    replays: bool = False

    @property
    def width(self) -> int:
        """Most query tokens per request."""
        return self.tokens + self.pending

    @property
    def stack(self) -> tuple[Span, Skips]:
        """What runs as one pass: layers from the first to the last, and the blocks left out."""
        return one_stack([span for span in self.spans if span is not None], self.skips)


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
            depends on the text, see `specplan.cost_models.rounds.refreshing`.
        region: as of a forward.
    """

    op: Op
    name: str
    width: int
    conditional: bool
    lane: str | None
    view: CacheState | None = None
    region: int | None = None


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
        replayed: caches that keep no drafted node, so that accepted ones run again.
        entered: of each `when` of the round in its order, the share of a request's rounds that
            enter it; empty where every one is taken to be entered.
        matching: where it is known how often each of the round's lookups is the first to match:
            how often, and what the round asks for then.
    """

    steps: tuple[ForwardDemand | OpDemand, ...]
    judged: tuple[TreeType, ...]
    not_run: Mapping[str, tuple[int, ...]] | None
    early_stops: bool
    ends: tuple[tuple[float, RoundDemands], ...] = ()
    replayed: frozenset[str] = frozenset()
    entered: tuple[Interval, ...] = ()
    matching: Matching | None = None


@dataclass(frozen=True, slots=True)
class Matching:
    """What a round asks for by the outcome of its lookups, as `outcomes_of` has them.

    Attributes:
        shares: of a request's rounds.
        forms: demands where all requests of a batch have the outcome, of a backend that leaves
            dead nodes out.
    """

    shares: tuple[float, ...]
    forms: tuple[RoundDemands, ...]


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
    judged = tuple(tree for tree in map(judged_tree, types.steps) if tree is not None)
    return RoundDemands(
        tuple(reader.demands),
        judged,
        _not_run(plan, types, judged[-1].nodes if judged else 0),
        any(op.may_stop for op in walk(item.ops)),
        replayed=reader.replayed,
    )


def judged_tree(step: Step) -> TreeType | None:
    """The tree that an op judges, if it judges one."""
    tree = None if step.op.judges is None else step.reads[step.op.judges]
    return tree if isinstance(tree, TreeType) else None


@dataclass
class _Reader:
    plan: Plan
    demands: list[ForwardDemand | OpDemand] = field(default_factory=list)
    drafted: dict[tuple[str, tuple[Span, ...], str], int] = field(default_factory=dict)

    @cached_property
    def replayed(self) -> frozenset[str]:
        """Caches that keep no drafted node."""
        return frozenset(str(one.name) for one in self.plan.caches if one.rollback == "replay")

    def read(self, step: Step) -> None:
        match step.op.demand(step, self.plan):
            case Pass() as needed:
                self.demands.append(self.forward(step, needed))
            case Work(name, width, view):
                where = step.conditional, step.lane, view, step.region
                op = OpDemand(step.op, name, width, *where)
                self.demands.append(op)

    def forward(self, step: Step, needed: Pass) -> ForwardDemand:
        kind = needed.cache, needed.spans, needed.way
        before, drafted = self.drafted.get(kind), needed.drafted
        first = before is None
        catches_up = needed.root or (needed.pending > 0 and first)
        least = drafted + (1 if catches_up else 0) + (needed.ahead if needed.slots else 0)
        most = least + max(needed.pending, 1) - 1 if catches_up and first else least
        self.drafted[kind] = (before or 0) + drafted
        return ForwardDemand(
            op=step.op,
            model=needed.model,
            cache=needed.cache,
            tokens=least,
            pending=most - least,
            drafted_before=before or 0,
            budget=needed.budget,
            rows=drafted + needed.root + needed.rows_ahead if needed.gives_logits else 0,
            spans=needed.spans,
            own_states=needed.own_states,
            conditional=step.conditional,
            lane=step.lane,
            skips=needed.skips,
            whole_heads=needed.whole_heads,
            region=step.region,
            replays=needed.cache in self.replayed and in_one_pass(self.plan, State(needed.cache)),
        )


def _not_run(plan: Plan, types: RoundTypes, nodes: int) -> Mapping[str, tuple[int, ...]] | None:
    """Nodes keep their numbers while trees only grow."""
    if any(step.op.renumbers for step in types.steps):
        return None
    ran: dict[str, set[int]] = {}
    for step in types.steps:
        needed = step.op.demand(step, plan)
        if isinstance(needed, Pass) and needed.cache and needed.way == "exact":
            nodes_run = ran.setdefault(needed.cache, set())
            for operand in step.reads.values():
                if isinstance(operand, TreeType):
                    nodes_run |= set(range(operand.nodes))
                elif isinstance(operand, NodesType):
                    nodes_run |= set(operand.indices or ())
    return {cache: tuple(sorted(set(range(nodes)) - operand)) for cache, operand in ran.items()}
