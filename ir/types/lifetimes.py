"""When the values of a round are read for the last time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specplan.ir.op import Op
from specplan.ir.plan import Plan, walk
from specplan.ir.types.scope import operands
from specplan.ir.values import Value


def read_by(ops: Iterable[Op]) -> set[Value]:
    """Every value that ops and their regions read."""
    found: set[Value] = set()
    for op in walk(tuple(ops)):
        found.update(operands(op))
        body = op.body
        if body is not None:
            found.update(body.yields)
            found.update(() if body.until is None else (body.until,))
    return found


def last_reads(plan: Plan) -> Mapping[int, tuple[Value, ...]]:
    """By the identity of an op, the values that nothing in its region reads after it.

    What it defines itself and nobody reads is among them; what a region yields is not, nor does a
    region's end let go of values around it.
    """
    found: dict[int, tuple[Value, ...]] = {}
    for item in plan.rounds:
        _note(item.ops, set(), found)
    return found


def _note(ops: tuple[Op, ...], wanted: set[Value], found: dict[int, tuple[Value, ...]]) -> None:
    """Go through the ops of a region from its end, whose `wanted` values are read later."""
    for op in reversed(ops):
        touched = read_by((op,)).union(op.results)
        spent = touched - wanted
        found[id(op)] = tuple(sorted(spent.intersection(found.get(id(op), spent))))
        wanted |= touched
        body = op.body
        if body is not None:
            later = set(body.yields)
            _note(body.ops, later | (set() if body.until is None else {body.until}), found)
