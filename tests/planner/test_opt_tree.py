"""Thresholds of layered growth: the one that costs call for is derived, named, run and priced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.ir.printer import print_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family
from specplan.planner.methods.opt_tree import METHOD, SHAPES, THRESHOLDS
from specplan.planner.profiles import acceptance_key
from specplan.planner.trees import RoundTimes
from specplan.planner.who_drafts import further_proposers, rehearsal_of
from specplan.planner.worthwhile_trees import layer_threshold, tree_objective
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
        speedup = tree_objective(facts, "draft").best(times).speedup
        found = layer_threshold(facts, "draft", beam)
        assert found == pytest.approx(draft / plain[0] * speedup)
        assert 0.0 < found < 1.0 < speedup


def test_it_is_measured_last_and_offered_once_it_was(facts: ProblemFacts) -> None:
    names = [
        name for name in further_proposers(facts) if name not in METHOD.proposers(facts.shapes)
    ]
    assert len(names) == len(SHAPES)
    assert further_proposers(replace(facts, profiles={})) == METHOD.proposers(facts.shapes)
    ran = {
        name: AcceptanceProfile(
            acceptance_key(facts.problem, facts.shapes, name), RoundsRun(made_up_lengths())
        )
        for name in names
    }
    known = replace(facts, profiles={**facts.profiles, **ran})
    assert further_proposers(known) == ()
    (family,) = METHOD.choices(known)
    assert isinstance(family, Family)
    added = [options for options in family.settings if METHOD.proposer(options) in names]
    assert [(options.nodes, options.beam) for options in added] == list(SHAPES)
    for options in added:
        derived = layer_threshold(facts, "draft", options.beam)
        assert options.threshold == pytest.approx(derived, abs=0.005)
        assert options.threshold not in THRESHOLDS
        plan = rehearsal_of(replace(facts, profiles={}), METHOD.proposer(options) or "")
        assert plan == METHOD.plan(facts, options)
        assert f'"v - s <= {options.threshold}"' in print_plan(plan)
