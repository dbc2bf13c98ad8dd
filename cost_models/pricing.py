"""What one round of a plan takes: the walk over its ops, each with its static sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specplan.cost_models.cost import Cost
from specplan.cost_models.device import Device, UnpricedError
from specplan.cost_models.forward import forward_cost
from specplan.cost_models.intervals import NO_TIME, Seconds, total
from specplan.cost_models.model_shape import ModelShape
from specplan.cost_models.round_types import round_types
from specplan.ir.infer import InferenceError, Step
from specplan.ir.ops import Accept, Commit, Forward, Grow, Lookup, Repeat
from specplan.ir.plan import CacheState, Plan, Round, walk
from specplan.ir.printer import print_op
from specplan.ir.types import NodesType, PathType, TreeType
from specplan.ir.values import State

Span = tuple[int, int] | None
GLUE_OPS = frozenset({"root", "pick", "place", "compute", "uniform", "emit", "commit"})
"""Bookkeeping that a device may leave to its round's glue; every other op needs a price."""


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Why a plan has no price.

    Attributes:
        op: the op concerned, as text; "" when it is the plan as a whole.
        reason: what is missing and how to mend it.
    """

    op: str
    reason: str

    def __str__(self) -> str:
        return f"`{self.op}` has no price: {self.reason}" if self.op else self.reason


@dataclass(frozen=True, slots=True)
class PricedOp:
    """All executions of one op of a round.

    Attributes:
        op: keyword, with `:rule` or `:how` where there are several.
        model: the model that runs, None for other ops.
        width: query tokens of a forward, else nodes worked on, per request.
        times: executions per round.
        seconds: of all executions.
    """

    op: str
    model: str | None
    width: int
    times: int
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class RoundPrice:
    """What a round takes.

    Attributes:
        seconds: wall-clock time.
        breakdown: where it goes, in program order; `round` is the glue between the ops.
        cost: resources of all forwards.
        assumptions: what was taken for granted.
    """

    seconds: Seconds
    breakdown: tuple[PricedOp, ...]
    cost: Cost
    assumptions: tuple[str, ...] = ()


def price_round(
    plan: Plan,
    item: Round,
    device: Device,
    shapes: Mapping[str, ModelShape],
    batch: int,
    context: float,
    lag: Mapping[str, float] | None = None,
) -> RoundPrice | Unpriced:
    """Price a round.

    Args:
        plan: declares the states.
        item: one of its rounds.
        device: what the ops run on.
        shapes: by the model's name in the plan.
        batch: requests.
        context: tokens of text per request.
        lag: per cache, the probability that some request of the batch needs all of a forward's
            `pending` tokens rather than the root alone; 1 where not given.

    Returns:
        The price, or why there is none.
    """
    walker = _Walk(plan, device, shapes, batch, context, dict(lag or {}))
    op = ""
    try:
        if plan.row_groups:
            raise UnpricedError("row groups are not priced yet")
        for step in round_types(plan, item).steps:
            op = print_op(step.op).splitlines()[0]
            walker.step(step)
        op = ""
        walker.record(PricedOp("round", None, 1, 1, device.round_seconds(batch)), None)
    except InferenceError as error:
        return Unpriced("", str(error))
    except UnpricedError as error:
        return Unpriced(op, str(error))
    loops = [op for op in walk(item.ops) if isinstance(op, Repeat) and op.body.until is not None]
    if loops:
        walker.assumptions.append("loops that may stop early run all their trips")
    return walker.price()


@dataclass
class _Walk:
    plan: Plan
    device: Device
    shapes: Mapping[str, ModelShape]
    batch: int
    context: float
    lag: dict[str, float]
    parts: list[tuple[PricedOp, str | None]] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    assumptions: list[str] = field(default_factory=list)
    resident: dict[tuple[str, tuple[Span, ...]], int] = field(default_factory=dict)

    def step(self, step: Step) -> None:
        if isinstance(step.op, Forward):
            priced = self.forward(step.op, step)
        else:
            name, width = op_size(step)
            priced = PricedOp(name, None, width, 1, self.op_seconds(name, width))
        if step.conditional:
            priced = replace(priced, seconds=replace(priced.seconds, low=0.0))
            self.assume("conditional ops run for some request of the batch")
        self.record(priced, step.lane)

    def op_seconds(self, name: str, width: int) -> Seconds:
        try:
            return self.device.op_seconds(name, self.batch, width)
        except UnpricedError:
            if name.partition(":")[0] in GLUE_OPS and self.device.kind == "measured":
                return NO_TIME
            raise

    def forward(self, op: Forward, step: Step) -> PricedOp:
        shape = self.shapes.get(op.model)
        if shape is None:
            raise UnpricedError(f"the shape of model {op.model!r} is not known")
        if op.skip:
            raise UnpricedError("forwards that skip blocks are not priced yet")
        root, drafted = forward_nodes(step)
        cache = str(op.cache or "")
        spans: tuple[Span, ...] = tuple((s.start, s.stop) for s in op.layers) or (None,)
        pending = op.pending if isinstance(op.pending, int) else max(op.pending)
        writes = (cache, spans)
        first = writes not in self.resident
        catches_up = root or (pending > 0 and first)
        least = drafted + (1 if catches_up else 0)
        most = drafted + max(pending, 1) if catches_up and first else least
        context = self.context_of(op.cache) + self.resident.get(writes, 0)
        rows = 0 if op.gives == () else drafted + (1 if root else 0)
        parts = [self.span_seconds(shape, tokens, context, rows, spans) for tokens in (least, most)]
        share = self.lag.get(cache, 1.0) if most > least else 0.0
        self.resident[writes] = self.resident.get(writes, 0) + drafted
        tokens = least + share * (most - least)
        for head, span in zip((*(0,) * (len(spans) - 1), rows), spans, strict=True):
            self.cost += forward_cost(shape, self.batch, tokens, context, head, span)
        return PricedOp("forward", op.model, most, 1, parts[0] * (1.0 - share) + parts[1] * share)

    def span_seconds(
        self, shape: ModelShape, tokens: int, context: float, rows: int, spans: tuple[Span, ...]
    ) -> Seconds:
        heads = (*(0,) * (len(spans) - 1), rows)
        return total(
            self.device.forward_seconds(shape, self.batch, tokens, context, head, span)
            for head, span in zip(heads, spans, strict=True)
        )

    def context_of(self, cache: State | None) -> float:
        state = self.plan.state(cache) if cache is not None else None
        if isinstance(state, CacheState) and state.budget is not None:
            return min(self.context, float(state.budget))
        return self.context

    def assume(self, what: str) -> None:
        if what not in self.assumptions:
            self.assumptions.append(what)

    def record(self, priced: PricedOp, lane: str | None) -> None:
        for place, (other, where) in enumerate(self.parts):
            if (other.op, other.model, other.width, where) == (
                priced.op, priced.model, priced.width, lane
            ):  # fmt: skip
                merged = replace(
                    other,
                    times=other.times + priced.times,
                    seconds=other.seconds + priced.seconds,
                )
                self.parts[place] = (merged, where)
                return
        self.parts.append((priced, lane))

    def price(self) -> RoundPrice:
        """The sum, lanes side by side: at best the longest lane, at worst one after another."""
        lanes: dict[str | None, Seconds] = {}
        for priced, lane in self.parts:
            lanes[lane] = lanes.get(lane, NO_TIME) + priced.seconds
        seconds = lanes.pop(None, NO_TIME)
        if lanes:
            self.assume("lanes run side by side without slowing each other")
            together = total(lanes.values())
            longest = max(lanes.values(), key=lambda lane: lane.median)
            seconds += replace(together, median=longest.median, low=longest.low)
        return RoundPrice(
            seconds, tuple(part for part, _ in self.parts), self.cost, tuple(self.assumptions)
        )


def forward_nodes(step: Step) -> tuple[bool, int]:
    """Whether a forward's operands hold the root, and how many drafted nodes they hold."""
    assert isinstance(step.op, Forward)
    root, drafted = False, 0
    for name in step.op.nodes:
        held = step.reads[name]
        if isinstance(held, TreeType):
            root, drafted = True, drafted + held.nodes
        elif isinstance(held, NodesType):
            root = root or held.root
            drafted += held.width - (1 if held.root else 0)
    return root, drafted


def op_size(step: Step) -> tuple[str, int]:
    """Name and width by which a device knows an op that is no forward."""
    op, given = step.op, next(iter(step.gives), None)
    match op:
        case Grow():
            before = step.reads[op.tree]
            assert isinstance(before, TreeType) and isinstance(given, TreeType)
            return f"grow:{op.how}", given.nodes - before.nodes
        case Accept():
            judged = step.reads[op.tree]
            assert isinstance(judged, TreeType)
            return f"accept:{op.rule.name}", judged.nodes
        case Lookup():
            return op.keyword, op.length
        case Commit():
            path = step.reads[op.path]
            assert isinstance(path, PathType)
            return "commit:chain" if path.nodes <= path.depth else "commit:tree", 1
    if isinstance(given, TreeType):
        return op.keyword, max(1, given.nodes)
    return op.keyword, 1
