"""The canonical names of values: what two texts of one plan have in common."""

from __future__ import annotations

import dataclasses

from specplan.ir.plan import Plan, Round
from specplan.ir.values import Value
from specplan.passes.values import with_rounds, with_values


def renumber(plan: Plan) -> Plan:
    """`%tree = root ...` -> `%v0 = root ...`, in the order in which values are defined."""
    return with_rounds(plan, _round)


def _round(item: Round) -> Round:
    names: dict[Value, Value] = {}
    ops = with_values(item.ops, lambda value: names.setdefault(value, Value(f"v{len(names)}")))
    return dataclasses.replace(item, ops=ops)
