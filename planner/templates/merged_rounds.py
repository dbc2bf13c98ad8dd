"""Rounds of several plans in one, with what each of them needs and promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from specplan.ir.errors import UsageError
from specplan.ir.plan import (
    Assumptions,
    CacheState,
    Guard,
    Plan,
    Round,
    Schedule,
    StateDeclaration,
)
from specplan.ir.rules.verify import check_plan
from specplan.ir.types.renaming import renamed
from specplan.ir.values import State, Text

HYSTERESIS = 0.1
"""A bound must be passed by this fraction before a switch is undone."""


def merge_plans(plans: dict[str, Plan]) -> Plan:
    """One plan that holds several plans' rounds.

    States that are declared alike are shared; one that is declared otherwise than an earlier plan's
    state of that name is called after its round, `@drafts_r1`.

    Args:
        plans: by the name that its round gets, which begins those of several rounds; at least one.

    Returns:
        The plan, without a schedule; it promises what all of them promise. `round_names` tells what
        its rounds are called.
    """
    parts = list(plans.values())
    versions: dict[State, list[StateDeclaration]] = {}
    rounds: list[Round] = []
    for given, plan in plans.items():
        names: dict[State, State] = {}
        for state in plan.states:
            names[state.name] = _declare(versions, _viewing(state, names), given)
        called = round_names(given, plan)
        for item in plan.rounds:
            ops = renamed(item.ops, State, partial(_called, names))
            rounds.append(replace(item, name=called[item.name], ops=ops))
    return replace(
        parts[0],
        models=tuple({model.name: model for plan in parts for model in plan.models}.values()),
        assumptions=_shared_promises([plan.assumptions for plan in parts]),
        states=tuple(state for declared in versions.values() for state in declared),
        rounds=tuple(rounds),
    )


def round_names(given: str, plan: Plan) -> dict[str, str]:
    """What the rounds of a plan are called in a merged one: `r1`, or `r1_blocks` and `r1_plain`."""
    if len(plan.rounds) == 1:
        return {plan.rounds[0].name: given}
    return {item.name: f"{given}_{item.name}" for item in plan.rounds}


def first_then(first: Plan, tokens: int, then: Plan, names: tuple[str, str]) -> Plan:
    """A plan that runs one plan's round until a request has emitted some tokens, then another's.

    Args:
        first: of one round, as `then`; gives the plan its name.
        tokens: of an output, at least 1.
        then: what runs from there on.
        names: of the two rounds.
    """
    merged = merge_plans({names[0]: first, names[1]: then})
    guard = Guard(formula=Text(f"emitted < {tokens}"), round=names[0])
    return replace(merged, schedule=Schedule(guards=(guard,), otherwise=names[1]))


def _called(names: dict[State, State], name: State) -> State:
    return names.get(name, name)


def _viewing(state: StateDeclaration, names: dict[State, State]) -> StateDeclaration:
    """A declaration whose view is of the state as it is called now."""
    if isinstance(state, CacheState) and state.view is not None:
        return replace(state, view=names.get(state.view, state.view))
    return state


def _declare(
    versions: dict[State, list[StateDeclaration]], state: StateDeclaration, given: str
) -> State:
    """The name of a state among those declared so far; it joins them if it is new."""
    known = versions.setdefault(state.name, [])
    for other in known:
        if replace(state, name=other.name) == other:
            return other.name
    name = State(f"{state.name}_{given}") if known else state.name
    known.append(replace(state, name=name))
    return name


_PROMISES = ("target", "stated", "bounded", "free")
"""From the strongest to the weakest: each holds where those before it do."""


def _shared_promises(every: list[Assumptions]) -> Assumptions:
    """What holds of all rounds; the loads of a schedule are told by its guards."""
    return replace(
        every[0],
        law=max((one.law for one in every), key=lambda law: _PROMISES.index(law.name)),
        reproducible=all(one.reproducible for one in every),
    )


def scheduled(name: str, plans: dict[str, Plan], conditions: Sequence[tuple[str, str]]) -> Plan:
    """One plan of several plans' rounds; where a plan has a schedule, it holds within its loads.

    Args:
        name: of the new plan.
        plans: by the name that its round gets, as in `merge_plans`.
        conditions: as `guards` gives them.
    """
    merged = merge_plans(plans)
    every = [pair for condition, given in conditions for pair in _within(condition, given, plans)]
    *before, (_, otherwise) = every
    guarded = tuple(Guard(formula=Text(condition), round=given) for condition, given in before)
    schedule = Schedule(guards=guarded, otherwise=otherwise, hysteresis=HYSTERESIS)
    return check_plan(replace(merged, name=name, schedule=schedule))


def take_turns(one: Plan, other: Plan) -> bool:
    """Whether rounds of both may stand in one plan, by the rules of plans."""
    try:
        scheduled("turns", {"r0": one, "r1": other}, (("batch <= 1", "r0"), ("", "r1")))
    except UsageError:
        return False
    return True


def _within(condition: str, given: str, plans: Mapping[str, Plan]) -> Iterator[tuple[str, str]]:
    """Conditions of a plan's rounds where the plan itself runs under a condition."""
    plan = plans[given]
    called = round_names(given, plan)
    if plan.schedule is None:
        yield condition, called[plan.rounds[0].name]
        return
    for guard in plan.schedule.guards:
        formula = f"{condition} and ({guard.formula})" if condition else str(guard.formula)
        yield formula, called[guard.round]
    yield condition, called[plan.schedule.otherwise]
