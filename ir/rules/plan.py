"""Rules about a plan as a whole: its names, sizes, states and schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from specplan.ir.errors import RuleError, UsageError
from specplan.ir.formula import formula_names, is_condition
from specplan.ir.op import Op
from specplan.ir.plan import MODEL_DTYPES, Plan
from specplan.ir.rules.states import states
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.bounds import check_bounds

GUARD_NAMES = frozenset({"batch", "context", "emitted", "phase", "group"})
MOST_STATEMENTS = 64
"""Models, states, rounds or guards of a plan."""
DEEPEST = 32
"""Regions within regions."""
PlanFinding = tuple[str, str, str]
"""Rule, place, reason."""


def plan_findings(plan: Plan, tables: Tables) -> Iterator[PlanFinding]:
    """Broken rules of everything outside of the rounds' ops."""
    if not plan.rounds:
        yield "plan", "plan", "the plan has no round"
    yield from _names("model", [model.name for model in plan.models])
    yield from _names("round", [item.name for item in plan.rounds])
    yield from _dtypes(plan)
    yield from _sizes(plan)
    yield from _schedule(plan)
    for what in states(plan, tables):
        yield "state", "plan", what
    for what in _parts(plan):
        yield "state", "plan", what
    for what in tables.problems("promise", plan.assumptions.law):
        yield "entry", "assume", what
    if plan.threads is not None:
        for what in tables.problems("threads", plan.threads.by):
            yield "entry", "threads", what


def _parts(plan: Plan) -> Iterator[str]:
    """`of=` names a model that is no part itself; `part=` comes with `of=`."""
    whole = {model.name for model in plan.models if model.of is None}
    for model in plan.models:
        if model.of is not None and model.of not in whole:
            yield f"of= of model {model.name} takes a declared model without of=, not {model.of}"
        if model.part is not None and model.of is None:
            yield f"model {model.name} has part= without of=; name the model that it is a part of"


def _names(kind: str, names: list[str]) -> Iterator[PlanFinding]:
    for name, count in Counter(names).items():
        if count > 1:
            yield "plan", "plan", f"{count} {kind}s are called '{name}'; rename all but one"


def _dtypes(plan: Plan) -> Iterator[PlanFinding]:
    for model in plan.models:
        if model.dtype is not None and model.dtype not in MODEL_DTYPES:
            known = ", ".join(MODEL_DTYPES)
            yield "plan", "plan", f"model {model.name} has dtype={model.dtype}; known: {known}"


def _sizes(plan: Plan) -> Iterator[PlanFinding]:
    guards = plan.schedule.guards if plan.schedule is not None else ()
    for things in (plan.models, plan.states, plan.rounds, guards):
        if len(things) > MOST_STATEMENTS:
            yield (
                "size",
                "plan",
                f"the plan has more than {MOST_STATEMENTS} models, states, rounds or guards",
            )
    checked: list[tuple[object, str]] = [(state, f"@{state.name}") for state in plan.states]
    if plan.threads is not None:
        checked.append((plan.threads, "threads"))
    for statement, what in [(plan.assumptions, "assume"), *checked]:
        try:
            check_bounds(statement, what)
        except RuleError as error:
            yield error.rule, "plan", error.what
    for item in plan.rounds:
        if _too_deep(item.ops, DEEPEST):
            yield "size", f"round {item.name}", f"regions are nested deeper than {DEEPEST}"


def _too_deep(ops: Iterable[Op], levels: int) -> bool:
    regions = [op.body for op in ops if op.body is not None]
    return bool(regions) and (
        levels == 0 or any(_too_deep(region.ops, levels - 1) for region in regions)
    )


def _schedule(plan: Plan) -> Iterator[PlanFinding]:
    names = [item.name for item in plan.rounds]
    if plan.schedule is None:
        if len(names) > 1:
            yield "schedule", "plan", "a plan of several rounds needs a schedule"
        return
    used = [guard.round for guard in plan.schedule.guards] + [plan.schedule.otherwise]
    for name in dict.fromkeys(used):
        if name not in names:
            yield "schedule", "schedule", f"no round is called '{name}'"
    for name in names:
        if name not in used:
            yield (
                "schedule",
                "schedule",
                f"the schedule never runs round '{name}'; name it or delete the round",
            )
    if not 0.0 <= plan.schedule.hysteresis < 1.0:
        yield "schedule", "schedule", "hysteresis= must be at least 0 and below 1"
    for guard in plan.schedule.guards:
        for what in _guard(guard.formula):
            yield "formula", "schedule", what


def _guard(formula: str) -> Iterator[str]:
    try:
        unknown = formula_names(formula) - GUARD_NAMES
        condition = is_condition(formula)
    except UsageError as error:
        yield str(error)
        return
    if unknown:
        known = ", ".join(sorted(GUARD_NAMES))
        yield f'guard "{formula}" reads {", ".join(sorted(unknown))}; guards may read {known}'
    if not condition:
        yield f'guard "{formula}" is a number; a guard must be a condition, like "batch <= 4"'
