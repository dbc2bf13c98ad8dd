"""Loops become straight lines: every level of a tree is an op of its own, with static sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from specplan.ir.ops import Forward, Op, Repeat, Segment, Uniform, When
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.types.infer import infer_round
from specplan.ir.types.value_types import TreeType, Type
from specplan.ir.values import Value
from specplan.passes.values import FreshNames, defined, with_body, with_rounds, with_values

Names: TypeAlias = dict[Value, Value]


def unroll(plan: Plan) -> Plan:
    """`repeat 3 { ... }` -> three copies; loops that may stop early stay.

    A copy draws the numbers that its trip drew. Only the first one catches up text: after it,
    nothing is pending but what a forward is told to run again.
    """
    return with_rounds(plan, lambda item: _round(plan, item))


def _round(plan: Plan, item: Round) -> Round:
    if not any(_fixed(op) for op in walk(item.ops)):
        return item
    copy = _Copy(FreshNames(item), infer_round(plan, item).types)
    ops = tuple(copy.of(item.ops, {}))
    return dataclasses.replace(item, ops=ops)


def _fixed(op: Op) -> bool:
    return isinstance(op, Repeat) and op.body.until is None


@dataclasses.dataclass(frozen=True)
class _Copy:
    """What the ops of one region become in one trip.

    Attributes:
        fresh: names that are free in the round.
        types: of the round's values, in the last trip inside loops.
        trip: of all enclosing loops that are unrolled.
        later: some enclosing loop that is unrolled is past its first trip.
        stays: the region stands in a loop that is not unrolled.
    """

    fresh: FreshNames
    types: Mapping[Value, Type]
    trip: int = 0
    later: bool = False
    stays: bool = False

    def of(self, ops: Iterable[Op], names: Names) -> Iterator[Op]:
        """Ops without the loops that are unrolled; `names` gains what their results are called."""
        for op in ops:
            if isinstance(op, Repeat) and _fixed(op) and not self.stays:
                yield from self._trips(op, names)
            elif isinstance(op, Repeat | When | Segment):
                yield self._region(op, names)
            else:
                yield with_values(self._op(op), lambda value: names.get(value, value))

    def _trips(self, op: Repeat, names: Names) -> Iterator[Op]:
        carried = [names.get(initial, initial) for _, initial in op.carried]
        for index in range(op.count):
            inner = names | {value: self.fresh.like(value) for value in defined(op.body.ops)}
            inner.update(zip((parameter for parameter, _ in op.carried), carried, strict=True))
            copy = dataclasses.replace(
                self, trip=self.trip * op.count + index, later=self.later or index > 0
            )
            yield from copy.of(op.body.ops, inner)
            carried = [inner.get(name, name) for name in op.body.yields]
        names.update(zip(op.results, carried, strict=True))

    def _region(self, op: Repeat | When | Segment, names: Names) -> Op:
        inside = self
        if isinstance(op, Repeat):
            inside = dataclasses.replace(self, trip=self.trip * op.count, stays=True)
        elif isinstance(op, When):  # in an earlier trip it may have been left out
            inside = dataclasses.replace(self, later=False)
        inner = dict(names)
        body = tuple(inside.of(op.body.ops, inner))
        shell = with_values(with_body(op, ()), lambda value: inner.get(value, value))
        return with_body(shell, body)

    def _op(self, op: Op) -> Op:
        if isinstance(op, Uniform):
            return dataclasses.replace(op, offset=op.offset + self.trip * op.count)
        if isinstance(op, Forward) and self.later and not self._with_root(op):
            return dataclasses.replace(op, pending=0)
        return op

    def _with_root(self, op: Forward) -> bool:
        types = (self.types[name] for name in op.nodes)
        return any(isinstance(item, TreeType) or getattr(item, "root", False) for item in types)
