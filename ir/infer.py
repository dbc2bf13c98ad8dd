"""Static types of a round, found by walking it once with every loop unrolled.

The walk also gives the flat list of steps that pricing and lowering read: each op instance with
the types of what it reads and what it defines.
"""

from __future__ import annotations

from dataclasses import dataclass

from specplan.ir.infer_ops import infer_op
from specplan.ir.ops import Op, Repeat, Segment, When
from specplan.ir.plan import Plan, Round
from specplan.ir.rule_error import RuleError
from specplan.ir.scope import WORDS, expect, join, look, operands
from specplan.ir.types import FlagType, TreeType, Type
from specplan.ir.values import Value

MOST_STEPS = 1 << 16


@dataclass(frozen=True, slots=True)
class Step:
    """One op instance.

    `trip` counts trips of all enclosing loops (0 outside), `trips` how many there are;
    `conditional` steps stand in a `when`.
    """

    op: Op
    reads: dict[Value, Type]
    gives: tuple[Type, ...]
    trip: int
    trips: int
    conditional: bool
    lane: str | None


@dataclass(frozen=True, slots=True)
class RoundTypes:
    """Types of all values (of the last trip, inside loops) and the unrolled steps."""

    types: dict[Value, Type]
    steps: tuple[Step, ...]


class InferenceError(Exception):
    """A rule broken at one op."""

    def __init__(self, op: Op | None, error: RuleError) -> None:
        self.op = op
        self.error = error
        super().__init__(str(error))


def infer_round(plan: Plan, item: Round) -> RoundTypes:
    """Types and steps of a round.

    Raises:
        InferenceError: at the first op whose operands do not fit; carries the rule's name.
    """
    walk = _Walk(plan)
    walk.ops(item.ops, {})
    return RoundTypes(walk.seen, tuple(walk.steps))


class _Walk:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen: dict[Value, Type] = {}
        self.steps: list[Step] = []
        self.trip, self.trips = 0, 1
        self.conditional = False
        self.lane: str | None = None

    def ops(self, ops: tuple[Op, ...], scope: dict[Value, Type]) -> None:
        for op in ops:
            try:
                self.op(op, scope)
            except RuleError as error:
                raise InferenceError(op, error) from error

    def op(self, op: Op, scope: dict[Value, Type]) -> None:
        match op:
            case Repeat():
                gives = self.repeat(op, scope)
            case When():
                gives = self.when(op, scope)
            case Segment():
                outer, self.lane = self.lane, op.lane or self.lane
                inner = dict(scope)
                self.ops(op.body.ops, inner)
                self.lane = outer
                gives = tuple(look(inner, name, "yield") for name in op.body.yields)
            case _:
                gives = infer_op(self.plan, op, scope)
                self._record(op, scope, gives)
        if len(gives) != len(op.results):
            raise RuleError(
                "arity", f"{op.keyword} gives {len(gives)} results, {len(op.results)} are named"
            )
        for name, given in zip(op.results, gives, strict=True):
            named = given.renamed(name) if isinstance(given, TreeType) else given
            scope[name] = self.seen[name] = named

    def _record(self, op: Op, scope: dict[Value, Type], gives: tuple[Type, ...]) -> None:
        reads = {name: scope[name] for name in operands(op) if name in scope}
        self.steps.append(
            Step(op, reads, gives, self.trip, self.trips, self.conditional, self.lane)
        )
        if len(self.steps) > MOST_STEPS:
            raise RuleError("size", f"the round unrolls to more than {MOST_STEPS} ops")

    def repeat(self, op: Repeat, scope: dict[Value, Type]) -> tuple[Type, ...]:
        if not 0 <= op.count <= MOST_STEPS:
            raise RuleError("size", f"repeat {op.count} is not between 0 and {MOST_STEPS}")
        if len(op.body.yields) != len(op.carried):
            raise RuleError(
                "arity", f"{len(op.carried)} values are carried, {len(op.body.yields)} yielded"
            )
        carried = tuple(look(scope, initial, "repeat") for _, initial in op.carried)
        trip, trips = self.trip, self.trips
        self.trips = trips * max(op.count, 1)
        for index in range(op.count):
            self.trip = trip * op.count + index
            inner = dict(scope)
            for (parameter, _), given in zip(op.carried, carried, strict=True):
                named = given.renamed(parameter) if isinstance(given, TreeType) else given
                inner[parameter] = self.seen[parameter] = named
            self.ops(op.body.ops, inner)
            following = tuple(look(inner, name, "yield") for name in op.body.yields)
            for before, after in zip(carried, following, strict=True):
                if type(before) is not type(after):
                    raise RuleError("type", f"carried {WORDS[type(before)]} becomes another kind")
            if op.body.until is not None:
                expect(inner, op.body.until, FlagType, "until")
            carried = following
        self.trip, self.trips = trip, trips
        return carried

    def when(self, op: When, scope: dict[Value, Type]) -> tuple[Type, ...]:
        expect(scope, op.flag, FlagType, "when")
        if len(op.otherwise) != len(op.body.yields):
            raise RuleError(
                "arity", f"{len(op.otherwise)} values otherwise, {len(op.body.yields)} yielded"
            )
        inner = dict(scope)
        outer, self.conditional = self.conditional, True
        self.ops(op.body.ops, inner)
        self.conditional = outer
        return tuple(
            join(look(inner, a, "yield"), look(scope, b, "otherwise"))
            for a, b in zip(op.body.yields, op.otherwise, strict=True)
        )
