"""Static types of a round, inferred by walking it once with every loop unrolled.

The walk also gives the flat list of steps that pricing and lowering read: each op instance with
the types of its operands and results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specplan.ir.errors import RuleError
from specplan.ir.op import Op, Region, Step
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.types.bounds import MOST_STEPS, MOST_WORK, check_bounds
from specplan.ir.types.context import ONCE, Context, Place, Scope
from specplan.ir.types.residency import stack_ends
from specplan.ir.types.scope import operands
from specplan.ir.types.tree_types import identified
from specplan.ir.types.value_types import LogitsType, NodesType, TreeType, Type
from specplan.ir.values import Value

__all__ = ["InferenceError", "RoundTypes", "Step", "infer_round"]


@dataclass(frozen=True, slots=True)
class RoundTypes:
    """Types of all values (of the last trip, inside loops) and the unrolled steps.

    `regions` has the types of what regions give, by the op's identity and the trip around it.
    """

    types: dict[Value, Type]
    steps: tuple[Step, ...]
    regions: Mapping[tuple[int, int], tuple[Type, ...]] = field(default_factory=dict)


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
    return RoundTypes(walk.seen, tuple(walk.steps), walk.regions)


class _Walk:
    def __init__(self, plan: Plan, item: Round) -> None:
        self.plan = plan
        self.ends = stack_ends(plan, item)
        self.seen: dict[Value, Type] = {}
        self.steps: list[Step] = []
        self.regions: dict[tuple[int, int], tuple[Type, ...]] = {}
        self.work, self.unrolled = 0, 0
        self.place = ONCE
        entered = (op for op in walk(item.ops) if op.keyword == "when")
        self.numbers = {id(op): number for number, op in enumerate(entered)}
        self.inside: int | None = None

    def ops(self, ops: tuple[Op, ...], scope: Scope) -> None:
        for op in ops:
            try:
                self.op(op, scope)
            except RuleError as error:
                raise InferenceError(op, error) from error

    def op(self, op: Op, scope: Scope) -> None:
        check_bounds(op, op.keyword)
        self._count(1, 0)
        outer, self.inside = self.inside, self.numbers.get(id(op), self.inside)
        gives = op.infer(Context(self.plan, scope, self.ends, self.region))
        self.inside = outer
        if op.body is not None:
            self.regions[id(op), self.place.trip] = gives
        else:
            gives = tuple(identified(item) for item in gives)
            self._record(op, scope, gives)
        if len(gives) != len(op.results):
            raise RuleError(
                "arity", f"{op.keyword} gives {len(gives)} results, and {len(op.results)} are named"
            )
        for name, item in zip(op.results, gives, strict=True):
            if name in scope:
                raise RuleError("ssa", f"%{name} is defined twice")
            scope[name] = self.seen[name] = item

    def region(
        self, region: Region, scope: Scope, given: Mapping[Value, Type], place: Place
    ) -> Scope:
        """See `WalkRegion`."""
        self._count(1, 0)
        outer, self.place = self.place, place.within(self.place)
        self.seen.update(given)
        inner = {**scope, **given}
        self.ops(region.ops, inner)
        self.place = outer
        return inner

    def _record(self, op: Op, scope: Scope, gives: tuple[Type, ...]) -> None:
        reads = {name: scope[name] for name in operands(op) if name in scope}
        at = self.place
        lane, region = at.lane, self.inside
        self.steps.append(Step(op, reads, gives, at.trip, at.trips, at.conditional, lane, region))
        for item in gives:
            if isinstance(item, TreeType):
                self._count(0, item.nodes)
            elif isinstance(item, NodesType | LogitsType):
                self._count(0, item.width)

    def _count(self, ops: int, nodes: int) -> None:
        self.unrolled += ops
        self.work += nodes
        if self.unrolled > MOST_STEPS:
            raise RuleError("size", f"the round unrolls to more than {MOST_STEPS} ops")
        if self.work > MOST_WORK:
            raise RuleError("size", f"the round unrolls to more than {MOST_WORK} nodes")
