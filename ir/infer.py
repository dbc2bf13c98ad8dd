"""Static types of a round, found by walking it once with every loop unrolled.

The walk also gives the flat list of steps that pricing and lowering read: each op instance with
the types of what it reads and what it defines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specplan.ir.bounds import MOST_STEPS, MOST_WORK, check_bounds
from specplan.ir.infer_models import stack_ends
from specplan.ir.infer_ops import infer_op
from specplan.ir.ops import Op, Repeat, Segment, When
from specplan.ir.plan import Plan, Round
from specplan.ir.rule_error import RuleError
from specplan.ir.scope import WORDS, expect, join, look, operands
from specplan.ir.types import FlagType, Lineage, NodesType, RowsType, TreeType, Type
from specplan.ir.values import Value


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
    walk = _Walk(plan, item)
    walk.ops(item.ops, {})
    return RoundTypes(walk.seen, tuple(walk.steps))


class _Walk:
    def __init__(self, plan: Plan, item: Round) -> None:
        self.plan = plan
        self.ends = stack_ends(plan, item)
        self.seen: dict[Value, Type] = {}
        self.steps: list[Step] = []
        self.work, self.unrolled = 0, 0
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
        check_bounds(op, op.keyword)
        self._count(1, 0)
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
                given = infer_op(self.plan, op, scope, self.ends)
                gives = tuple(_identified(item) for item in given)
                self._record(op, scope, gives)
        if len(gives) != len(op.results):
            raise RuleError(
                "arity", f"{op.keyword} gives {len(gives)} results, {len(op.results)} are named"
            )
        for name, item in zip(op.results, gives, strict=True):
            if name in scope:
                raise RuleError("ssa", f"%{name} is defined twice")
            scope[name] = self.seen[name] = item

    def _record(self, op: Op, scope: dict[Value, Type], gives: tuple[Type, ...]) -> None:
        reads = {name: scope[name] for name in operands(op) if name in scope}
        self.steps.append(
            Step(op, reads, gives, self.trip, self.trips, self.conditional, self.lane)
        )
        for item in gives:
            if isinstance(item, TreeType):
                self._count(0, item.nodes)
            elif isinstance(item, NodesType | RowsType):
                self._count(0, item.width)

    def _count(self, ops: int, nodes: int) -> None:
        self.unrolled += ops
        self.work += nodes
        if self.unrolled > MOST_STEPS:
            raise RuleError("size", f"the round unrolls to more than {MOST_STEPS} ops")
        if self.work > MOST_WORK:
            raise RuleError("size", f"the round unrolls to more than {MOST_WORK} nodes")

    def repeat(self, op: Repeat, scope: dict[Value, Type]) -> tuple[Type, ...]:
        if len(op.body.yields) != len(op.carried):
            raise RuleError(
                "arity", f"{len(op.carried)} values are carried, {len(op.body.yields)} yielded"
            )
        if op.only is not None:
            expect(scope, op.only, FlagType, "only")
            if op.body.until is None:
                raise RuleError("arity", "only= stands where trips may end early; give until=")
        carried = tuple(look(scope, initial, "repeat") for _, initial in op.carried)
        trip, trips = self.trip, self.trips
        self.trips = trips * max(op.count, 1)
        for index in range(op.count):
            self._count(1, 0)
            self.trip = trip * op.count + index
            inner = dict(scope)
            for (parameter, _), given in zip(op.carried, carried, strict=True):
                inner[parameter] = self.seen[parameter] = given
            self.ops(op.body.ops, inner)
            following = tuple(look(inner, name, "yield") for name in op.body.yields)
            for before, after in zip(carried, following, strict=True):
                if type(before) is not type(after):
                    raise RuleError("type", f"carried {WORDS[type(before)]} becomes another kind")
            if op.body.until is not None:
                expect(inner, op.body.until, FlagType, "until")
            carried = following
        self.trip, self.trips = trip, trips
        if op.body.until is not None:
            return tuple(_cut_short(item) for item in carried)
        return carried

    def when(self, op: When, scope: dict[Value, Type]) -> tuple[Type, ...]:
        flag = expect(scope, op.flag, FlagType, "when")
        if len(op.otherwise) != len(op.body.yields):
            raise RuleError(
                "arity", f"{len(op.otherwise)} values otherwise, {len(op.body.yields)} yielded"
            )
        inner = dict(scope)
        outer, self.conditional = self.conditional, True
        self.ops(op.body.ops, inner)
        self.conditional = outer
        joined: list[Type] = []
        for name, other in zip(op.body.yields, op.otherwise, strict=True):
            entered, kept = look(inner, name, "yield"), look(scope, other, "otherwise")
            either = join(entered, kept)
            if isinstance(either, TreeType) and (flag.drawn or _chose_draws(entered, kept, scope)):
                either = replace(either, dropped_draws=True)
            joined.append(_identified(either))
        return tuple(joined)


def _identified(item: Type) -> Type:
    """A tree with an identity of its own, which extends the one it had."""
    if not isinstance(item, TreeType):
        return item
    return replace(item, lineage=Lineage(item.lineage, item.nodes, item.parents, item.drawn))


def _cut_short(item: Type) -> Type:
    """What a loop gives that may have ended early: some of the last nodes may be missing."""
    if not isinstance(item, TreeType):
        return item
    return replace(item, ragged=True, newest=None)


def _chose_draws(entered: Type, kept: Type, scope: dict[Value, Type]) -> bool:
    """True when nodes that were drawn before the flag was known stand in one branch only."""
    for one, other in ((entered, kept), (kept, entered)):
        for tree in scope.values():
            if isinstance(tree, TreeType) and tree.drawn and isinstance(other, TreeType):
                extends = isinstance(one, TreeType) and _extends(one, tree)
                if extends and not _extends(other, tree):
                    return True
    return False


def _extends(tree: TreeType, other: TreeType) -> bool:
    if tree.lineage is None or other.lineage is None:
        return False
    return tree.lineage.extends(other.lineage)
