"""A plan to text that a person can read and edit, and the parser reads back."""

from __future__ import annotations

import dataclasses
from typing import Any

from specplan.ir.op import Op, Region
from specplan.ir.plan import (
    CacheState,
    Plan,
    Round,
    Schedule,
    SourceState,
    StateDeclaration,
    TrackState,
    ValueState,
)
from specplan.ir.values import print_atom

_INDENT = "  "


def print_plan(plan: Plan) -> str:
    """The plan as text; defaults are not printed."""
    lines = [f"plan {plan.name}"]
    lines += [" ".join(["model", m.name, *_attributes(m, skip=("name",))]) for m in plan.models]
    assumed = _attributes(plan.assumptions)
    if assumed:
        lines.append(" ".join(["assume", *assumed]))
    if plan.threads is not None:
        lines.append(f"threads {plan.threads.count} by={print_atom(plan.threads.by)}")
    lines += [print_state(state) for state in plan.states]
    for item in plan.rounds:
        lines += print_round(item).splitlines()
    if plan.schedule is not None:
        lines += _schedule(plan.schedule)
    return "\n".join(lines) + "\n"


def print_round(item: Round) -> str:
    """One round as text."""
    body = [line for op in item.ops for line in _op(op, 1)]
    return "\n".join([f"round {item.name} {{", *body, "}"])


def print_op(op: Op) -> str:
    """One op as text, with its region if it has one."""
    return "\n".join(_op(op, 0))


def print_state(state: StateDeclaration) -> str:
    """A state's declaration as text."""
    head = f"state {print_atom(state.name)} = {state.keyword}"
    match state:
        case CacheState() | TrackState():
            return " ".join([head, state.model, *_attributes(state, skip=("name", "model"))])
        case SourceState() | ValueState():
            kind = print_atom(state.kind)
            return " ".join([head, kind, *_attributes(state, skip=("name", "kind"))])


def _schedule(schedule: Schedule) -> list[str]:
    attributes = _attributes(schedule, skip=("guards", "otherwise"))
    lines = [" ".join(["schedule", *attributes, "{"])]
    lines += [f"{_INDENT}when {print_atom(g.formula)} {g.round}" for g in schedule.guards]
    return [*lines, f"{_INDENT}otherwise {schedule.otherwise}", "}"]


def _op(op: Op, level: int) -> list[str]:
    words = [op.keyword]
    if op.results:
        words = [", ".join(print_atom(name) for name in op.results), "=", *words]
    for name in op.positional:
        value = getattr(op, name)
        items = value if isinstance(value, tuple) else (value,)
        words += [print_atom(item) for item in items]
    if op.carried:
        pairs = ", ".join(f"{print_atom(p)} = {print_atom(i)}" for p, i in op.carried)
        words.append(f"({pairs})")
    if op.rest is not None:
        words += [f"{key}={print_atom(value)}" for key, value in getattr(op, op.rest)]
    words += _attributes(op, skip=("results", "body", "carried", op.rest or "", *op.positional))
    line = _INDENT * level + " ".join(words)
    if op.body is not None:
        return [f"{line} {{", *_region(op.body, level + 1), f"{_INDENT * level}}}"]
    return [line]


def _region(region: Region, level: int) -> list[str]:
    lines = [line for op in region.ops for line in _op(op, level)]
    if region.yields or region.until is not None:
        words = ["yield"]
        if region.yields:
            words.append(", ".join(print_atom(name) for name in region.yields))
        if region.until is not None:
            words.append(f"until={print_atom(region.until)}")
        lines.append(_INDENT * level + " ".join(words))
    return lines


def _attributes(item: Any, skip: tuple[str, ...] = ()) -> list[str]:
    words: list[str] = []
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if field.name not in skip and value is not None and value != field.default:
            words.append(f"{field.name}={print_atom(value)}")
    return words
