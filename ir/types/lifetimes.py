"""When the values of a round are read for the last time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specplan.ir.op import Op
from specplan.ir.plan import Plan, walk
from specplan.ir.types.scope import operands
from specplan.ir.values import Value


def read_by(ops: Iterable[Op]) -> set[Value]:
    """Every value that ops and their regions read."""
    values: set[Value] = set()
    for op in walk(tuple(ops)):
        values.update(operands(op))
        body = op.body
        if body is not None:
            values.update(body.yields)
            values.update(() if body.until is None else (body.until,))
    return values


def last_reads(plan: Plan) -> Mapping[int, tuple[Value, ...]]:
    """By the identity of an op, the values that nothing in its region reads after it.

    They include results that nothing reads. They do not include what the region yields, nor values
    that are defined around the region.
    """
    last: dict[int, tuple[Value, ...]] = {}
    for item in plan.rounds:
        _note(item.ops, set(), last)
    return last


def _note(ops: tuple[Op, ...], wanted: set[Value], last: dict[int, tuple[Value, ...]]) -> None:
    """Walk the ops of a region backwards; `wanted` are the values that are read later."""
    for op in reversed(ops):
        touched = read_by((op,)).union(op.results)
        unread = touched - wanted
        last[id(op)] = tuple(sorted(unread.intersection(last.get(id(op), unread))))
        wanted |= touched
        body = op.body
        if body is not None:
            later = set(body.yields)
            _note(body.ops, later | (set() if body.until is None else {body.until}), last)
