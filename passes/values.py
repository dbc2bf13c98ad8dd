"""What passes share: values, regions and rounds replaced, and names that are free."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from specplan.ir.ops import Op
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.types.renaming import renamed
from specplan.ir.values import Value

T = TypeVar("T")
OpT = TypeVar("OpT", bound=Op)


def with_values(item: T, named: Callable[[Value], Value]) -> T:
    """The same op, or tuple of ops, with every value named anew.

    Args:
        item: an op, or whatever ops hold.
        named: asked for what an op reads before what it defines, in program order.
    """
    return renamed(item, Value, named)


def with_rounds(plan: Plan, change: Callable[[Round], Round]) -> Plan:
    """The plan with every round changed; the same object when none was."""
    rounds = tuple(change(item) for item in plan.rounds)
    return plan if rounds == plan.rounds else dataclasses.replace(plan, rounds=rounds)


def with_body(op: OpT, ops: Iterable[Op]) -> OpT:
    """The op with other ops in its region."""
    assert op.body is not None, "it holds a region"
    body = dataclasses.replace(op.body, ops=tuple(ops))
    changed: OpT = cast(Any, dataclasses.replace)(op, body=body)
    return changed


def defined(ops: Iterable[Op]) -> Iterator[Value]:
    """Every value that ops define, in regions and as parameters of loops too."""
    for op in walk(tuple(ops)):
        yield from (parameter for parameter, _ in op.carried)
        yield from op.results


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

    def called(self, word: str) -> Value:
        """The word itself, or as `like` has it where it is taken."""
        name = Value(word)
        if name in self._used:
            return self.like(name)
        self._used.add(name)
        return name
