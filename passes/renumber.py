"""The canonical names of values: what two texts of one plan have in common."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from specplan.ir.ops import Op, Region
from specplan.ir.plan import Plan
from specplan.ir.printer import print_plan
from specplan.ir.values import Value


def renumber(plan: Plan) -> Plan:
    """`%tree = root ...` -> `%v0 = root ...`, in the order in which values are defined."""
    rounds = []
    for item in plan.rounds:
        names: dict[str, Value] = {}
        rounds.append(dataclasses.replace(item, ops=_ops(item.ops, names)))
    if tuple(rounds) == plan.rounds:
        return plan
    return dataclasses.replace(plan, rounds=tuple(rounds))


def plan_digest(plan: Plan) -> str:
    """Hexadecimal sha256 of a plan, the same for plans that differ in names of values only."""
    return hashlib.sha256(print_plan(renumber(plan)).encode()).hexdigest()


def _ops(ops: tuple[Op, ...], names: dict[str, Value]) -> tuple[Op, ...]:
    return tuple(_rename(op, names) for op in ops)


def _rename(item: Any, names: dict[str, Value]) -> Any:
    """The same structure with renamed values; new names are given as definitions are met."""
    match item:
        case Value():
            return names.setdefault(item, Value(f"v{len(names)}"))
        case tuple():
            return tuple(_rename(part, names) for part in item)
        case Region():
            return Region(
                ops=_ops(item.ops, names),
                yields=_rename(item.yields, names),
                until=_rename(item.until, names),
            )
        case _ if dataclasses.is_dataclass(item) and hasattr(item, "results"):
            fields = [field.name for field in dataclasses.fields(item)]
            fields.sort(key=lambda name: name == "results")  # what is read was defined before
            changed = {name: _rename(getattr(item, name), names) for name in fields}
            return dataclasses.replace(item, **changed)  # type: ignore[type-var]
    return item
