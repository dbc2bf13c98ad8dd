"""What passes share: values, regions and rounds replaced, and names that are free."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from specplan.ir.ops import Op, Region, RegionOp, Repeat, Segment, When
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.scope import operands
from specplan.ir.values import Value

T = TypeVar("T")


def with_values(item: T, named: Callable[[Value], Value]) -> T:
    """The same op, or tuple of ops, with every value named anew.

    Args:
        item: an op, or whatever ops hold.
        named: asked for what an op reads before what it defines, in program order.
    """
    found: T = _replaced(item, named)
    return found


def with_rounds(plan: Plan, change: Callable[[Round], Round]) -> Plan:
    """The plan with every round changed; the same object when none was."""
    rounds = tuple(change(item) for item in plan.rounds)
    return plan if rounds == plan.rounds else dataclasses.replace(plan, rounds=rounds)


def with_body(op: RegionOp, ops: Iterable[Op]) -> RegionOp:
    """The op with other ops in its region."""
    return dataclasses.replace(op, body=dataclasses.replace(op.body, ops=tuple(ops)))


def defined(ops: Iterable[Op]) -> Iterator[Value]:
    """Every value that ops define, in regions and as parameters of loops too."""
    for op in walk(tuple(ops)):
        if isinstance(op, Repeat):
            yield from (parameter for parameter, _ in op.carried)
        yield from op.results


def read_by(ops: Iterable[Op]) -> set[Value]:
    """Every value that ops and their regions read."""
    found: set[Value] = set()
    for op in walk(tuple(ops)):
        found.update(operands(op))
        if isinstance(op, Repeat | When | Segment):
            found.update(op.body.yields)
            found.update(() if op.body.until is None else (op.body.until,))
    return found


class FreshNames:
    """Names of values that a round does not use yet."""

    def __init__(self, item: Round) -> None:
        self._used = set(defined(item.ops))

    def like(self, value: Value) -> Value:
        """`q` -> `q_1`, or the next number that is free."""
        number = 1
        while (name := Value(f"{value}_{number}")) in self._used:
            number += 1
        self._used.add(name)
        return name


def _replaced(item: Any, named: Callable[[Value], Value]) -> Any:
    match item:
        case Value():
            return named(item)
        case tuple():
            return tuple(_replaced(part, named) for part in item)
        case Region():
            return Region(
                ops=_replaced(item.ops, named),
                yields=_replaced(item.yields, named),
                until=_replaced(item.until, named),
            )
        case _ if dataclasses.is_dataclass(item) and hasattr(item, "results"):
            fields = [field.name for field in dataclasses.fields(item)]
            fields.sort(key=lambda name: name == "results")  # what is read was defined before
            changed = {name: _replaced(getattr(item, name), named) for name in fields}
            return dataclasses.replace(item, **changed)  # type: ignore[type-var]
    return item
