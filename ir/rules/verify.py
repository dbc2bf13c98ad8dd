"""The verifier: every broken rule is reported by name, with its place and a reason."""

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
"""Rules of whole rounds. Rules of single ops are in their files (`Op.findings`)."""
RULES = (
    "plan", "schedule", "formula", "state", "reproducible", "ssa", "declared", "entry",
    "commit", "view", "type", "arity", "lineage", "children", "size",
    "stream", "emit", "progress", "residency", "starvation", "features", "capacity",
    "lanes", "lossless", "law", "draws",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One broken rule: its name, the place as plan text, and the reason."""

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
    broken_rules = verify_plan(plan, tables)
    if broken_rules:
        more = f" ({len(broken_rules) - 1} more)" if len(broken_rules) > 1 else ""
        raise UsageError(
            f"[{broken_rules[0].rule}] {broken_rules[0].what}{more}",
            where=f"plan {plan.name}, {broken_rules[0].where}",
            remedy="Edit the plan; docs/plan_language.md explains each rule.",
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
    broken = [(rule, op, what) for rule, pairs in untyped.items() for op, what in pairs]
    broken += [(rule, op, what) for op in walk(item.ops) for rule, what in op.misplaced(plan)]
    if not broken:
        try:
            broken = list(_typed_findings(plan, item, infer_round(plan, item), tables))
        except InferenceError as error:
            broken = [(error.error.rule, error.op, error.error.what)]
    for rule, op, what in sorted(broken, key=lambda one: RULES.index(one[0])):
        place = "" if op is None else f", {_text(op)}"
        yield Diagnostic(rule, f"round {item.name}{place}", what)


def _typed_findings(
    plan: Plan, item: Round, types: RoundTypes, tables: Tables
) -> Iterator[tuple[str, Op | None, str]]:
    for rule, check in _TYPED.items():
        yield from ((rule, op, what) for op, what in check(plan, item, types, tables))
    for step in types.steps:
        for rule, what in step.op.findings(step, plan, tables):
            yield rule, step.op, what


def _text(op: Op) -> str:
    return f"`{print_op(op).splitlines()[0]}`"
