"""Formats are compared by plain decoding in turns, where their times were measured apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan import gathering
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance
from specplan.measure.bench import plain_in_turns
from specplan.planner import (
    MeasuredPlan,
    MeasuredPlans,
    Problem,
    ProblemFacts,
    gather_facts,
    load_problem,
    plan_key,
    search,
)
from specplan.problems import each_variant
from specplan.progress import silent
from tests.measure.problems import write_problem


def here(problem: Problem, memory: float = 1e12) -> ProblemFacts:
    """Facts whose times count as measured on this machine; they are those of a data sheet."""
    made = Provenance("x", "eager", 2, "2026-11-28", memory)
    device, sheet = MeasuredDevice(MeasuredTable("here", made)), load_device("cpu-generic")
    for part in ("forward", "prefill", "op", "read", "round"):
        setattr(device, f"{part}_seconds", getattr(sheet, f"{part}_seconds"))
    return gather_facts(problem, device=device)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    path = write_problem(tmp_path, prompts=2)
    described = json.loads(path.read_text())
    del described["workload"]["prompts"]
    described |= {"methods": ["draft_model"], "acceptance": {"draft": 0.7}}
    path.write_text(json.dumps(described | {"formats": ["float64", "float32"]}))
    return load_problem(path)


def test_prices_of_all_formats_are_set_right(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "gather", lambda one, _: here(one))
    result = gathering.find(problem, silent)
    (measured,) = result.facts.measured.plans
    assert result.plain.plan is not None and measured.plan == plan_key(result.plain.plan)
    (estimate,) = result.plain.estimates
    assert estimate.measured and measured.turns == plain_in_turns.TURNS
    assert estimate.request_seconds.median == pytest.approx(24 * measured.seconds_per_token)
    assert 0.0 < measured.error < 1.0
    before = search(here(result.facts.problem))
    factor = estimate.request_seconds.median / before.plain.estimates[0].request_seconds.median
    pairs = zip(before.candidates, result.candidates, strict=True)
    for old, new in (pair for pair in pairs if pair[0].priced):
        was, now = (one.estimates[0].request_seconds.median for one in (old, new))
        assert now == pytest.approx(factor * was), "those that did not run, by the same factor"
    assert all(one.chosen is not None for one in result.backends)
    monkeypatch.setattr(plain_in_turns, "seconds_in_turns", None)
    again = gathering.find(problem, silent)
    assert again.facts.measured.plans == result.facts.measured.plans, "the same answer again"


def test_where_nothing_is_run_in_turns(problem: Problem) -> None:
    """What was raced stays, one format needs no comparison, and models must fit together."""
    known = {one.label: here(one) for one in each_variant(problem)}
    name = next(iter(known))
    plans = MeasuredPlans((MeasuredPlan("a", "b", "", "", {}, 1, 40, 0.1, 0.0, 0.0, 1.0, 1),))
    raced = known | {name: replace(known[name], measured=plans)}
    small = here(known[name].problem, known[name].target.weight_bytes)
    for left in (raced, {name: known[name]}, known | {name: small}):
        assert gathering._in_turns(left, silent) == {}
