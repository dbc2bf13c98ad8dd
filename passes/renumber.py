"""The canonical names of values: what two texts of one plan have in common."""

from __future__ import annotations

import dataclasses
import hashlib

from specplan.ir.plan import Plan
from specplan.ir.printer import print_plan
from specplan.ir.values import Value
from specplan.passes.values import with_values


def renumber(plan: Plan) -> Plan:
    """`%tree = root ...` -> `%v0 = root ...`, in the order in which values are defined."""
    rounds = []
    for item in plan.rounds:
        names: dict[Value, Value] = {}

        def named(value: Value, names: dict[Value, Value] = names) -> Value:
            return names.setdefault(value, Value(f"v{len(names)}"))

        rounds.append(dataclasses.replace(item, ops=with_values(item.ops, named)))
    if tuple(rounds) == plan.rounds:
        return plan
    return dataclasses.replace(plan, rounds=tuple(rounds))


def plan_digest(plan: Plan) -> str:
    """Hexadecimal sha256 of a plan, the same for plans that differ in names of values only."""
    return hashlib.sha256(print_plan(renumber(plan)).encode()).hexdigest()
