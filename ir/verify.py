"""The verifier: named rules, each broken one reported with its place and its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from specplan.ir import rules_law, rules_state
from specplan.ir.errors import UsageError
from specplan.ir.formula import formula_names
from specplan.ir.infer import InferenceError, RoundTypes, infer_round
from specplan.ir.ops import Op
from specplan.ir.plan import Plan, Round
from specplan.ir.printer import print_op
from specplan.ir.tables import BUILTIN, Tables

GUARD_NAMES = frozenset({"batch", "context", "emitted", "phase"})
_TypedRule = Callable[[Plan, Round, RoundTypes, Tables], Iterable[rules_state.Finding]]
_TYPED: dict[str, _TypedRule] = {
    "stream": lambda plan, item, types, tables: rules_state.streams(types),
    "emit": lambda plan, item, types, tables: rules_state.committed_paths(types),
    "residency": lambda plan, item, types, tables: rules_state.resident(plan, types),
    "lanes": lambda plan, item, types, tables: rules_state.lanes(item, types),
    "lossless": lambda plan, item, types, tables: rules_law.lossless(plan, types, tables),
    "law": lambda plan, item, types, tables: rules_law.rule_fits(types, tables),
    "draws": lambda plan, item, types, tables: rules_law.draws(types),
    "probe": lambda plan, item, types, tables: rules_law.probes(types),
}
RULES = (
    "plan", "schedule", "formula", "state", "ssa", "declared", "entry", "commit", "view",
    "type", "arity", "lineage", "children", "size", *_TYPED,
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
    return tuple(_plan_findings(plan, tables))


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


def _plan_findings(plan: Plan, tables: Tables) -> Iterator[Diagnostic]:
    names = [item.name for item in plan.rounds]
    if not names:
        yield Diagnostic("plan", "plan", "has no round")
    if len(set(names)) != len(names):
        yield Diagnostic("plan", "plan", "two rounds have the same name")
    yield from _schedule(plan, names)
    for _, what in rules_state.unused_states(plan):
        yield Diagnostic("state", "plan", what)
    for item in plan.rounds:
        yield from _round_findings(plan, item, tables)


def _schedule(plan: Plan, names: list[str]) -> Iterator[Diagnostic]:
    if plan.schedule is None:
        if len(names) > 1:
            yield Diagnostic("schedule", "plan", "several rounds and no schedule")
        return
    used = [guard.round for guard in plan.schedule.guards] + [plan.schedule.otherwise]
    for name in used:
        if name not in names:
            yield Diagnostic("schedule", "schedule", f"no round is called '{name}'")
    if not 0.0 <= plan.schedule.hysteresis < 1.0:
        yield Diagnostic("schedule", "schedule", "hysteresis lies between 0 and 1")
    for guard in plan.schedule.guards:
        try:
            unknown = formula_names(guard.formula) - GUARD_NAMES
        except UsageError as error:
            yield Diagnostic("formula", "schedule", str(error))
            continue
        if unknown:
            yield Diagnostic("formula", "schedule", f"a guard knows no {', '.join(unknown)}")


def _round_findings(plan: Plan, item: Round, tables: Tables) -> Iterator[Diagnostic]:
    untyped: dict[str, Iterable[rules_state.Finding]] = {
        "ssa": rules_state.ssa(item),
        "declared": rules_state.declared(plan, item),
        "entry": rules_state.entries(plan, item, tables),
        "commit": rules_state.written(plan, item),
        "view": rules_state.views(plan, item),
    }
    broken = False
    for rule, findings in untyped.items():
        for op, what in findings:
            broken = True
            yield Diagnostic(rule, _where(item, op), what)
    if broken:
        return
    try:
        types = infer_round(plan, item)
    except InferenceError as error:
        yield Diagnostic(error.error.rule, _where(item, error.op), error.error.what)
        return
    except UsageError as error:
        yield Diagnostic("formula", f"round {item.name}", str(error))
        return
    for rule, check in _TYPED.items():
        seen: set[tuple[str, str]] = set()
        for op, what in check(plan, item, types, tables):
            place = _where(item, op)
            if (place, what) not in seen:
                seen.add((place, what))
                yield Diagnostic(rule, place, what)


def _where(item: Round, op: Op | None) -> str:
    if op is None:
        return f"round {item.name}"
    return f"round {item.name}, `{print_op(op).splitlines()[0]}`"
