"""Methods that draft with several models: some of them, or all, and the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.ir.rules.verify import verify_plan
from specplan.planner.drafters.candidates import possible_drafters, profiling_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, discover_methods
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, load_pair, plainly, save_pair, save_shorter
from tests.planner.checkpoints import write_checkpoint
from tests.planner.example_facts import SHARED, SIXTY_EIGHT_MILLION, example_facts

DRAFTERS = {
    "specinfer": {
        ("draft", "other"),
        ("draft", "text"),
        ("other", "text"),
        ("draft", "other", "text"),
    },
    "minions": {("draft", "other", "text")},
}


@pytest.fixture(params=[0.0, 0.8], ids=["greedy", "sampled"])
def facts(request: pytest.FixtureRequest, tmp_path: Path) -> ProblemFacts:
    other = {**SHARED, **SIXTY_EIGHT_MILLION, "dtype": "bfloat16"}
    write_checkpoint(tmp_path / "other", weights=False, **other)
    drafts = [{"name": name, "path": name} for name in ("draft", "other")]
    return example_facts(
        tmp_path,
        temperature=request.param,
        models={"target": {"path": "target"}, "drafts": drafts},
        methods=[*DRAFTERS],
    )


@pytest.mark.parametrize("name", DRAFTERS)
def test_plans_of_several_models_decode_as_the_target(
    name: str, facts: ProblemFacts, tmp_path: Path
) -> None:
    save_pair(tmp_path / "tiny")
    save_shorter(tmp_path / "tiny", "other", 1)
    other = load_model(tmp_path / "tiny" / "other", dtype="float64")
    models = {**load_pair(tmp_path / "tiny"), "other": other}
    requests = [
        Request(prompt_tokens=(5, 6, 7 + seed) * (1 + seed), max_new_tokens=9) for seed in range(3)
    ]
    expected = plainly(models, requests)
    method = discover_methods()[name]
    (family,) = method.choices(facts)
    assert isinstance(family, Family)
    assert {setting.drafters for setting in family.settings} == DRAFTERS[name]
    assert len({method.drafter(facts, setting) for setting in family.settings}) == len(
        family.settings
    )
    known = possible_drafters(facts)
    for setting in family.settings[::3]:
        plan = method.plan(facts, setting)
        drafter = method.drafter(facts, setting)
        assert drafter is not None and profiling_plan(facts, drafter) == plan
        assert drafter in known and not verify_plan(plan)
        assert in_batches(plan, models, requests, 3) == expected, setting
