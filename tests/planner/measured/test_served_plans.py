"""What an engine took sets the prices on a named device right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.devices.engine_runs import ServedRun
from specplan.importing import import_device
from specplan.ir.errors import UsageError
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.served import plain_plan, remember_served, served_plan
from specplan.planner.measured.store import known_plans
from specplan.planner.search.search import SearchResult, search
from tests.planner.example_facts import example_facts

RUN = ServedRun(100, 3.9, 41.0, 32.0, 0.8, 0.02, None, "a run")


@pytest.fixture
def facts(tmp_path: Path) -> ProblemFacts:
    return example_facts(tmp_path)


def again(facts: ProblemFacts) -> SearchResult:
    return search(replace(facts, measured=known_plans(facts)))


def test_plain_decoding_sets_the_device_right(facts: ProblemFacts) -> None:
    before = search(facts)
    served = served_plan(facts, RUN, *plain_plan(facts))
    assert (served.batch, served.prompt_tokens, served.tokens_per_round) == (4, 40, 1.0)
    remember_served(facts, served, RUN)
    after = again(facts)
    one, four = after.plain.estimates
    assert four.measured and not one.measured
    assert four.request_seconds.median == pytest.approx(0.8)
    factor = 0.8 / before.plain.estimates[1].request_seconds.median
    for old, new in zip(before.candidates, after.candidates, strict=False):
        if old.priced and not old.by_cell and old is not before.plain:
            was, now = (c.estimates[1].request_seconds.median for c in (old, new))
            assert now == pytest.approx(factor * was), "the others on it are priced by the same"


def test_a_second_run_takes_the_place_of_the_first(facts: ProblemFacts) -> None:
    for seconds in (0.8, 0.6):
        run = replace(RUN, request_seconds=seconds)
        remember_served(facts, served_plan(facts, run, *plain_plan(facts)), run)
    other = replace(RUN, in_flight=1.0)
    remember_served(facts, served_plan(facts, other, *plain_plan(facts)), other)
    known = known_plans(facts)
    assert [(p.batch, p.seconds_per_token) for p in known.plans] == [(4, 0.6 / 32), (1, 0.8 / 32)]
    assert known.provenance["runs"] == ["a run"] * 3


def test_loads_that_the_problem_does_not_have(facts: ProblemFacts) -> None:
    plain = plain_plan(facts)
    for changed, named in (
        ({"in_flight": 2.0}, "batch_sizes"),
        ({"prompt_tokens": 100.0}, "prompt_lengths"),
        ({"output_tokens": 16.0}, "output_tokens"),
    ):
        with pytest.raises(UsageError, match=named):
            served_plan(facts, replace(RUN, **changed), *plain)
    plan, _, words = plain
    with pytest.raises(UsageError, match="tokens a step"):
        served_plan(facts, RUN, plan, "draft_model", words)


def test_from_files(facts: ProblemFacts, tmp_path: Path) -> None:
    """The plan of a projection, served by an engine, has the measured time afterwards."""
    chosen = search(facts).chosen
    assert chosen.plan is not None and chosen.method != "autoregressive"
    folder = tmp_path / "projection"
    folder.mkdir()
    emitted = {"plan": chosen.as_dict()["plan"], "method": chosen.method, "words": chosen.words}
    (folder / "projection.json").write_text(json.dumps({"emitted": emitted}))
    result = tmp_path / "result.json"
    result_file = {
        "completed": 64, "duration": 12.8, "total_input_tokens": 2560, "total_output_tokens": 2048,
        "mean_e2el_ms": 800.0, "std_e2el_ms": 80.0, "spec_decode_acceptance_length": 2.25,
    }  # fmt: skip
    result.write_text(json.dumps(result_file))
    problem = facts.problem
    served = import_device([result], problem, projection=folder)
    assert (served.batch, served.tokens_per_round, served.turns) == (4, 2.25, 64)
    after = again(facts)
    same = next(c for c in after.candidates if c.plan == chosen.plan and not c.by_cell)
    assert same.estimates[1].request_seconds.median == pytest.approx(0.8)
    (folder / "projection.json").write_text("{}")
    with pytest.raises(UsageError, match="no projection"):
        import_device([result], problem, projection=folder)
    here = problem.model_copy(update={"device": "measured"})
    with pytest.raises(UsageError, match="machine here"):
        import_device([result], here)
