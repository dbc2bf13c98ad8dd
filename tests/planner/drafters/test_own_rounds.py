"""A profile of rounds that ran prices the plan that ran, and none of other constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import Drafter, OwnRounds
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.planner.drafters.candidates import possible_drafters, profiling_plan
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods import bild, relaxed_acceptance, triforce
from specplan.planner.search.search import search
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from tests.planner.example_facts import example_facts, made_up_lengths


def with_rounds(facts: ProblemFacts) -> ProblemFacts:
    """With profiles, made up, of all rounds that are run."""
    keys = {
        drafter: acceptance_key(facts.problem, facts.shapes, drafter)
        for drafter in possible_drafters(facts)
        if isinstance(drafter, OwnRounds)
    }
    ran: dict[Drafter, AcceptanceProfile] = {
        drafter: AcceptanceProfile(key, RoundsRun(made_up_lengths()))
        for drafter, key in keys.items()
    }
    return replace(facts, profiles={**facts.profiles, **ran})


@pytest.mark.parametrize(
    ("module", "constant", "value"),
    [
        (relaxed_acceptance, "TOP", 20),
        (relaxed_acceptance, "DELTA", 0.3),
        (triforce, "DRAFT_BUDGET", 64),
        (bild, "ROLLBACKS", (2.004,)),
    ],
)
def test_an_edited_constant_is_not_priced_by_the_old_profile(
    module: object, constant: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = getattr(module, "METHOD")  # noqa: B009
    assert isinstance(method, ProfiledByRunning)
    facts = with_rounds(example_facts(tmp_path, methods=[method.name]))
    (family,) = method.choices(facts)
    assert isinstance(family, Family) and family.settings
    priced = [one for one in search(facts).candidates if one.method == method.name]
    assert priced and all(one.estimate is not None for one in priced)
    monkeypatch.setattr(module, constant, value)
    edited = replace(facts, own_rounds={})
    (refused,) = method.choices(edited)
    assert isinstance(refused, Refusal) and "acceptance of" in refused.reason
    assert not any(one.estimate for one in search(edited).candidates if one.method == method.name)
    assert {*possible_drafters(edited)} - {*facts.profiles}, "they are to be measured anew"


def test_the_plan_that_is_run_is_the_plan_that_is_priced(tmp_path: Path) -> None:
    facts = example_facts(tmp_path, methods=["relaxed_acceptance"])
    ran = [one for one in possible_drafters(facts) if isinstance(one, OwnRounds)]
    assert len(ran) == len({one.key for one in ran}) == len(relaxed_acceptance.LENGTHS)
    for drafter in ran:
        plan = profiling_plan(facts, drafter)
        assert plan is not None and OwnRounds.of(plan) == drafter
        assert acceptance_key(facts.problem, facts.shapes, drafter).how == "run"
    assert profiling_plan(facts, replace(ran[0], key="p0")) is None
