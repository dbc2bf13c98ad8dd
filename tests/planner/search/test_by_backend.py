"""One choice among several backends and engines."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.devices.device import load_device
from specplan.gathering import find
from specplan.ir.errors import InfeasibleError, MissingCapabilityError
from specplan.planner.explain.data import explain
from specplan.planner.explain.words import explain_words
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.backends import backends_data, best_backend
from specplan.planner.search.search import SearchResult, search
from specplan.planner.search.settings import PLAIN
from specplan.progress import silent
from tests.planner.example_facts import example_facts, example_problem, profiles


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    facts = example_facts(tmp_path_factory.mktemp("backends"))
    problem = facts.problem.model_copy(update={"backend": "slow"})
    return search(replace(facts, problem=problem, device=load_device("a100-sxm-80gb")))


@pytest.fixture(scope="module")
def fast(slow: SearchResult) -> SearchResult:
    problem = slow.facts.problem.model_copy(update={"backend": "fast"})
    return search(replace(slow.facts, problem=problem, device=load_device("b200")))


def named(folder: Path, *backends: str) -> SearchResult:
    """The example's answer by the front door."""
    example_facts(folder)  # writes the checkpoints
    given = {}
    for name, profile in profiles(greedy=True).items():
        given[name] = folder / f"{name}.json"
        profile.save(given[name])
    asked: dict[str, Any] = {"acceptance": {str(n): str(p) for n, p in given.items()}}
    problem = problem_from_dict(example_problem(backends=backends, **asked), folder)
    return find(problem, silent)


@pytest.mark.parametrize("order", [("slow", "fast"), ("fast", "slow")])
def test_the_faster_backend_is_taken_wherever_it_stands(
    slow: SearchResult, fast: SearchResult, order: tuple[str, ...]
) -> None:
    both = {"slow": slow, "fast": fast}
    best = best_backend({name: both[name] for name in order})
    assert best.facts.problem.backend == "fast"
    assert best.chosen is fast.chosen
    by_name = {one["backend"]: one for one in backends_data(best)}
    assert list(by_name) == list(order)
    assert by_name["fast"]["chosen"] and not by_name["slow"]["chosen"]
    assert by_name["fast"]["gain"] is None
    assert by_name["slow"]["gain"]["low"] > 1.0
    assert by_name["slow"]["words"] == slow.chosen.words


def test_backends_of_one_price_are_taken_in_order(tmp_path: Path) -> None:
    """A data sheet prices all backends alike: no gain, so the first one stays."""
    for order in (("eager", "inductor"), ("inductor", "eager")):
        searched = named(tmp_path, *order)
        assert searched.facts.problem.backend == order[0]
        assert searched.facts.problem.backends == ()
        assert [one.backend for one in searched.backends] == list(order)


def test_a_backend_that_runs_the_better_plan_is_taken(tmp_path: Path) -> None:
    searched = named(tmp_path, "onnxruntime_genai", "eager")
    engine, own = searched.backends
    assert engine.chosen is not None and own.chosen is searched.chosen
    assert searched.facts.problem.backend == "eager"
    assert searched.chosen.method != PLAIN
    words = explain_words(explain(searched))
    (line,) = [one for one in words if one.startswith("Backends: ")]
    assert re.match(
        r"Backends: eager is the best \| [\d.]+x over onnxruntime_genai with [a-z]", line
    ), line
    json.dumps(explain(searched))


def test_a_backend_without_a_plan_says_why(slow: SearchResult) -> None:
    refused = MissingCapabilityError("needs onnx", where="backend onnxruntime", remedy="pip")
    best = best_backend({"onnxruntime": refused, "slow": slow})
    assert best.chosen is slow.chosen
    first, second = backends_data(best)
    assert first["refusal"] == "backend onnxruntime: needs onnx. pip"
    assert (first["method"], first["gain"]) == (None, None)
    assert second["refusal"] is None
    words = "\n".join(explain_words(explain(best)))
    assert "Backends: slow is the best | onnxruntime: no plan." in words
    assert "No plan for onnxruntime: backend onnxruntime: needs onnx. pip." in words


def test_where_no_backend_has_a_plan_a_limit_is_reported_before_what_is_missing() -> None:
    refused = MissingCapabilityError("needs onnx", where="here")
    with pytest.raises(MissingCapabilityError, match="needs onnx"):
        best_backend({"onnxruntime": refused, "other": MissingCapabilityError("needs g++")})
    with pytest.raises(InfeasibleError, match="too slow"):
        best_backend({"onnxruntime": refused, "other": InfeasibleError("too slow")})


def test_one_backend_needs_no_words(slow: SearchResult) -> None:
    assert backends_data(slow) == []
    assert not any("Backends" in line for line in explain_words(explain(slow)))
