"""The verifier: named rules, each broken one reported with its place and its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from specplan.ir.errors import UsageError
from specplan.ir.op import Op
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.rules import caches, flow, layers, promises, states
from specplan.ir.rules import tables as table_rules
from specplan.ir.rules.plan import plan_findings
from specplan.ir.tables.builtin import BUILTIN, Tables
from specplan.ir.text.printer import print_op
from specplan.ir.types.infer import InferenceError, RoundTypes, infer_round

_TypedRule = Callable[[Plan, Round, RoundTypes, Tables], Iterable[states.Finding]]
_TYPED: Mapping[str, _TypedRule] = {
    "reproducible": lambda plan, item, types, tables: table_rules.shared(plan, types, tables),
    "stream": lambda plan, item, types, tables: flow.streams(plan, types, tables),
    "emit": lambda plan, item, types, tables: flow.emits(types),
    "progress": lambda plan, item, types, tables: flow.progress(types),
    "residency": lambda plan, item, types, tables: chain(
        caches.resident(types), layers.holes(plan, item)
    ),
    "starvation": lambda plan, item, types, tables: caches.starvation(plan, types),
    "features": lambda plan, item, types, tables: layers.tracks(plan, item, types),
    "lanes": lambda plan, item, types, tables: flow.lanes(types),
    "lossless": lambda plan, item, types, tables: promises.lossless(plan, types, tables),
}
"""Rules of whole rounds; ops know those of their own (`Op.findings`)."""
RULES = (
    "plan", "schedule", "formula", "state", "reproducible", "ssa", "declared", "entry",
    "commit", "view", "type", "arity", "lineage", "children", "size",
    "stream", "emit", "progress", "residency", "starvation", "features", "capacity",
    "lanes", "lossless", "law", "draws",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One broken rule: its name, the place as plan text, and why."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: [{self.rule}] {self.what}"


def verify_plan(plan: Plan, tables: Tables = BUILTIN) -> tuple[Diagnostic, ...]:
    """All rules that the plan breaks; empty when it is well formed."""
    return tuple(dict.fromkeys(_findings(plan, tables)))


def check_plan(plan: Plan, tables: Tables = BUILTIN) -> Plan:
    """The plan itself, when it is well formed.

    Raises:
        UsageError: names the first broken rule, the round and the op.
    """
    found = verify_plan(plan, tables)
    if found:
        more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
        raise UsageError(
            f"[{found[0].rule}] {found[0].what}{more}",
            where=f"plan {plan.name}, {found[0].where}",
            remedy="Mend the plan text; docs/plan_language.md explains each rule.",
        )
    return plan


def _findings(plan: Plan, tables: Tables) -> Iterator[Diagnostic]:
    broken = False
    for rule, where, what in plan_findings(plan, tables):
        broken = True
        yield Diagnostic(rule, where, what)
    for op, what in table_rules.reproducible(plan, tables):
        yield Diagnostic("reproducible", "plan" if op is None else f"plan, {_text(op)}", what)
    if not broken:
        for item in plan.rounds:
            yield from _round_findings(plan, item, tables)


def _round_findings(plan: Plan, item: Round, tables: Tables) -> Iterator[Diagnostic]:
    untyped: dict[str, Iterable[states.Finding]] = {
        "ssa": states.ssa(item),
        "declared": states.declared(plan, item),
        "entry": table_rules.entries(item, tables),
        "commit": states.written(plan, item),
    }
    found = [
        Diagnostic(rule, _where(item, op), what)
        for rule, findings in untyped.items()
        for op, what in findings
    ]
    found += [
        Diagnostic(rule, _where(item, op), what)
        for op in walk(item.ops)
        for rule, what in op.misplaced(plan)
    ]
    if found:
        yield from sorted(found, key=_order)
        return
    try:
        types = infer_round(plan, item)
    except InferenceError as error:
        yield Diagnostic(error.error.rule, _where(item, error.op), error.error.what)
        return
    checked = [
        Diagnostic(rule, _where(item, op), what)
        for rule, check in _TYPED.items()
        for op, what in check(plan, item, types, tables)
    ]
    checked += [
        Diagnostic(rule, _where(item, step.op), what)
        for step in types.steps
        for rule, what in step.op.findings(step, plan, tables)
    ]
    yield from sorted(checked, key=_order)


def _order(found: Diagnostic) -> int:
    return RULES.index(found.rule)


def _where(item: Round, op: Op | None) -> str:
    return f"round {item.name}" if op is None else f"round {item.name}, {_text(op)}"


def _text(op: Op) -> str:
    return f"`{print_op(op).splitlines()[0]}`"
