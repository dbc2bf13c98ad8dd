"""Thresholds of layered growth: the one that costs call for is derived, named, run and priced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.text.printer import print_plan
from specplan.planner.drafters.candidates import later_drafters, profiling_plan
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family
from specplan.planner.methods.opt_tree import METHOD, SHAPES, THRESHOLDS
from specplan.planner.trees import RoundTimes
from specplan.planner.trees.candidates import layer_threshold, tree_objective
from tests.planner.example_facts import example_facts, made_up_lengths


@pytest.fixture
def facts(tmp_path: Path) -> ProblemFacts:
    return example_facts(tmp_path, methods=["opt_tree"])


def test_the_threshold_is_what_a_pass_takes_over_what_a_token_is_worth(
    facts: ProblemFacts,
) -> None:
    """mu S, as in the papers' own terms: mu the share of a plain step, S the speedup."""
    for _, beam in SHAPES:
        draft = facts.pass_seconds("draft", 64)[1, beam - 1]
        plain = facts.pass_seconds("target", 65)[1]
        times = RoundTimes(plain, facts.pass_seconds("draft", 64)[1])
        speedup = tree_objective(facts, Model("draft")).best(times).speedup
        threshold = layer_threshold(facts, Model("draft"), beam)
        assert threshold == pytest.approx(draft / plain[0] * speedup)
        assert 0.0 < threshold < 1.0 < speedup


def test_it_is_measured_last_and_offered_once_it_was(facts: ProblemFacts) -> None:
    first = tuple(METHOD.drafter(facts, one) for one in METHOD.run_settings(facts))
    names = [one for one in later_drafters(facts) if one not in first]
    assert len(names) == len(SHAPES)
    assert later_drafters(replace(facts, profiles={})) == first
    ran = {
        name: AcceptanceProfile(
            acceptance_key(facts.problem, facts.shapes, name), RoundsRun(made_up_lengths())
        )
        for name in names
    }
    known = replace(facts, profiles={**facts.profiles, **ran})
    assert set(later_drafters(known)) == {*first} - {*known.profiles}
    (family,) = METHOD.choices(known)
    assert isinstance(family, Family)
    added = [options for options in family.settings if METHOD.drafter(facts, options) in names]
    assert [(options.nodes, options.beam) for options in added] == list(SHAPES)
    for options in added:
        derived = layer_threshold(facts, Model("draft"), options.beam)
        assert options.threshold == pytest.approx(derived, abs=0.005)
        assert options.threshold not in THRESHOLDS
        drafter = METHOD.drafter(facts, options)
        assert drafter is not None
        plan = profiling_plan(facts, drafter)
        assert plan == METHOD.plan(facts, options)
        assert f'"v - s <= {options.threshold}"' in print_plan(plan)
