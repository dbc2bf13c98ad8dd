"""Rounds of several plans in one, with what each of them needs and promises."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from specplan.ir.plan import Assumptions, CacheState, Plan, Round, StateDeclaration
from specplan.ir.renaming import renamed
from specplan.ir.values import State


def merge_plans(plans: dict[str, Plan]) -> Plan:
    """One plan that holds several plans' rounds.

    States that are declared alike are shared; one that is declared otherwise than an earlier plan's
    state of that name is called after its round, `@drafts_r1`.

    Args:
        plans: one round each, by the name that it gets; at least one.

    Returns:
        The plan, without a schedule; it promises what all of them promise.
    """
    parts = list(plans.values())
    versions: dict[State, list[StateDeclaration]] = {}
    rounds: list[Round] = []
    for given, plan in plans.items():
        names: dict[State, State] = {}
        for state in plan.states:
            names[state.name] = _declare(versions, _viewing(state, names), given)
        ops = renamed(plan.rounds[0].ops, State, partial(_called, names))
        rounds.append(replace(plan.rounds[0], name=given, ops=ops))
    return replace(
        parts[0],
        models=tuple({model.name: model for plan in parts for model in plan.models}.values()),
        assumptions=_shared_promises([plan.assumptions for plan in parts]),
        states=tuple(state for declared in versions.values() for state in declared),
        rounds=tuple(rounds),
    )


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


def _shared_promises(every: list[Assumptions]) -> Assumptions:
    """What holds of all rounds; the loads of a schedule are told by its guards."""
    return replace(
        every[0],
        lossless=all(one.lossless for one in every),
        reproducible=all(one.reproducible for one in every),
    )
