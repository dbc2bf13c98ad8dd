"""Rounds of any two plans make one plan: each keeps its own states, and promises hold for all."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice, product

import pytest

from specplan.ir.errors import UsageError
from specplan.ir.formula import evaluate
from specplan.ir.plan import CacheState, Plan, StateDeclaration
from specplan.ir.rules.verify import verify_plan
from specplan.ir.schedule import select_round
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.types.renaming import renamed
from specplan.ir.values import TEXT_STATE, State
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, discover_methods
from specplan.planner.templates.merged_rounds import (
    first_then,
    merge_plans,
    round_names,
    scheduled,
    take_turns,
)
from tests.cost_models.rounds.test_pricing import PLAIN
from tests.matrix import sized
from tests.plan_texts import greedy_chain
from tests.planner.rich_facts import usual_facts

STRIDE = sized(59, 5)
"""Every so many of all pairs are merged; no divisor of how many settings a method has."""
CONDITIONS = (("batch <= 2", "r0"), ("", "r1"))


def _plans(facts: ProblemFacts) -> list[Plan]:
    """The first and the last setting of every family of every method."""
    plans = []
    for method in discover_methods().values():
        for family in method.choices(facts):
            assert isinstance(family, Family)
            ends = dict.fromkeys((family.settings[0], family.settings[-1]))
            plans += [method.plan(facts, options) for options in ends]
    return plans


def _spelled(plan: Plan, name: str) -> tuple[object, ...]:
    """A round's ops and the states that they use, by the numbers of their first use."""
    order: dict[State, State] = {}
    ops = renamed(
        plan.round(name).ops, State, lambda state: order.setdefault(state, State(f"s{len(order)}"))
    )
    return ops, tuple(_nameless(plan, used) for used in order if used != TEXT_STATE)


def _nameless(plan: Plan, name: State) -> tuple[StateDeclaration, ...]:
    """What is declared under a name, and what that is a view of."""
    state = plan.state(name)
    assert state is not None
    bare = replace(state, name=State("it"))
    if not isinstance(bare, CacheState) or bare.view is None:
        return (bare,)
    return replace(bare, view=State("other")), *_nameless(plan, bare.view)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_each_round_keeps_its_own_states(temperature: float) -> None:
    plans = _plans(usual_facts(temperature))
    with_renamed = 0
    for one, other in islice(combinations(plans, 2), 0, None, STRIDE):
        merged = merge_plans({"r0": one, "r1": other})
        for given, part in (("r0", one), ("r1", other)):
            for own, called in round_names(given, part).items():
                assert _spelled(merged, called) == _spelled(part, own), (one.name, other.name)
        with_renamed += any(state.name.endswith("_r1") for state in merged.states)
        promised = merged.assumptions
        assert promised.lossless == (one.assumptions.lossless and other.assumptions.lossless)
        assert promised.reproducible == (
            one.assumptions.reproducible and other.assumptions.reproducible
        )
    assert with_renamed > 10


def test_any_two_rounds_make_a_right_plan() -> None:
    plans = _plans(usual_facts(0.8))
    for one, other in islice(combinations(plans, 2), 0, None, STRIDE + 2):
        merged = merge_plans({"r0": one, "r1": other})
        assert parse_plan(print_plan(merged)) == merged
        by_position = ["key=position" in print_plan(plan) for plan in (one, other)]
        try:
            both = scheduled("both", {"r0": one, "r1": other}, CONDITIONS)
        except UsageError as refusal:
            if "without keep=" in str(refusal):  # it reads hidden states that its own rounds keep
                assert "predictive_pipeline" in (one.name, other.name)
                continue
            # Numbers of a position may be read again; only rounds that race over them may do so.
            # A round that goes on from states which the round before it kept follows no other.
            mixed = any(by_position) and not all(by_position)
            goes_on = any(" features=@" in print_plan(plan) for plan in (one, other))
            reasons = {"reads the same numbers again": mixed, "keep=@": goes_on}
            given = [reason for reason, holds in reasons.items() if holds]
            assert any(reason in str(refusal) for reason in given), (one.name, other.name)
        else:
            assert verify_plan(both) == (), (one.name, other.name)


def test_rounds_that_draw_by_position_take_no_turns_with_others() -> None:
    facts = usual_facts(0.8)
    plans = {}
    for name in ("autoregressive", "draft_model", "shared_draws"):
        method = discover_methods()[name]
        (family, *_) = (family for family in method.choices(facts) if isinstance(family, Family))
        plans[name] = method.plan(facts, family.settings[0])
    able = {name: take_turns(plan, plans["autoregressive"]) for name, plan in plans.items()}
    assert able == {"autoregressive": True, "draft_model": True, "shared_draws": False}


def test_states_that_are_alike_are_shared() -> None:
    for plan in _plans(usual_facts(0.8)):
        assert merge_plans({"r0": plan, "r1": plan, "r2": plan}).states == plan.states


def test_a_plans_own_schedule_holds_within_its_loads() -> None:
    """At every load and place, the round that the load's own plan would run."""
    chains = first_then(greedy_chain(4), 24, greedy_chain(2), ("four", "two"))
    parts = {"r0": chains, "r1": parse_plan(PLAIN)}
    for conditions in (CONDITIONS, (("batch <= 2 and context <= 64", "r1"), ("", "r0"))):
        plan = scheduled("both", parts, conditions)
        assert parse_plan(print_plan(plan)) == plan
        assert {item.name for item in plan.rounds} == {"r0_four", "r0_two", "r1"}
        for batch, context, emitted in product((1, 2, 3, 9), (8, 99), (0, 23, 24, 25)):
            load = {"batch": batch, "context": context, "emitted": emitted}
            (given, *_) = (name for text, name in conditions if not text or evaluate(text, load))
            own = select_round(parts[given], **load)
            expected = round_names(given, parts[given])[own]
            assert select_round(plan, **load) == expected, load
            if batch == 1:  # what was emitted never hovers at its bound
                assert select_round(plan, **load, current="r0_four") == expected, load
