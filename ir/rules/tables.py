"""Rules about entries of open tables, and about reproducible draws."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.ops import Op, Update
from specplan.ir.plan import (
    CacheState,
    Plan,
    Round,
    SourceState,
    StateDeclaration,
    ValueState,
    walk,
    walk_plan,
)
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.value_types import FlagType, NumberType, Type
from specplan.ir.values import Entry

Finding = tuple[Op | None, str]
_SAY_SO = ", so that draws do; declare assume reproducible=false"


def entries(item: Round, tables: Tables) -> Iterator[Finding]:
    """Entries of open tables exist and take the parameters given."""
    for op in walk(item.ops):
        for field, table in op.entries:
            entry = getattr(op, field)
            for what in () if entry is None else tables.problems(table, entry):
                yield op, what
            if entry is not None and table == "policy" and not _is_of_passes(entry, tables):
                yield op, f"policy {entry.name} is of caches; declare a view with it"


def state_entries(state: StateDeclaration, tables: Tables) -> Iterator[str]:
    """`entries` for the entry that a state is declared with."""
    match state:
        case SourceState():
            yield from tables.problems("source", state.kind)
            declared = tables.find("source", state.kind.name)
            if declared is not None and declared.one_text and state.scope != "request":
                yield f"source {declared.name} holds the text of one request; give scope=request"
        case ValueState():
            yield from tables.problems("value", state.kind)
        case CacheState() if state.policy is not None:
            yield from tables.problems("policy", state.policy)
            if _is_of_passes(state.policy, tables):
                yield f"policy {state.policy.name} is of passes; give it to forward"


def _is_of_passes(policy: Entry, tables: Tables) -> bool:
    declared = tables.find("policy", policy.name)
    return declared is not None and declared.of == "pass"


def reproducible(plan: Plan, tables: Tables) -> Iterator[Finding]:
    """Draws of a reproducible plan do not depend on other requests or on changing weights."""
    if not plan.assumptions.reproducible:
        return
    if not _draws(plan, tables):
        return
    for op in dict.fromkeys(op for op in walk_plan(plan) if isinstance(op, Update)):
        source = plan.state(op.source)
        if isinstance(source, SourceState) and source.scope == "process":
            yield op, f"@{source.name} learns from other requests{_SAY_SO}"
    for model in plan.models:
        if model.revision == "live":
            yield None, f"the weights of model {model.name} change (revision=live){_SAY_SO}"


def shared(plan: Plan, types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """Draws of a reproducible plan do not depend on numbers measured over other requests."""
    if not plan.assumptions.reproducible or not _draws(plan, tables):
        return
    for step in types.steps:
        began = not any(_of_others(one) for one in step.reads.values())
        if began and any(_of_others(one) for one in step.gives):
            yield step.op, "its number depends on other requests" + _SAY_SO


def _draws(plan: Plan, tables: Tables) -> bool:
    """Whether some rule draws."""
    rules = [op.judges_by for op in walk_plan(plan)]
    judges = [tables.find("rule", rule.name) for rule in rules if rule is not None]
    return any(rule is not None and rule.lossless != "greedy" for rule in judges)


def _of_others(one: Type) -> bool:
    return isinstance(one, NumberType | FlagType) and one.shared
