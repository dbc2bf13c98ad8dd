"""The front of speed per user against speed per device."""

from __future__ import annotations

import pytest

from specplan.planner.answer.names import plan_name
from specplan.planner.explain.data import explain
from specplan.planner.explain.words import explain_words
from specplan.planner.search.comparing import pareto_front
from specplan.planner.search.search import SearchResult, search
from tests.planner.example_facts import example_facts


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    lengths = {
        "batch_sizes": [1, 4, 32, 256],
        "prompt_lengths": [16, 200],
        "output_tokens": 32,
        "temperature": 0.0,
    }
    return search(example_facts(tmp_path_factory.mktemp("front"), workload=lengths))


def test_no_plan_beats_a_point_of_the_front_in_both(searched: SearchResult) -> None:
    front = pareto_front(searched.candidates)
    assert {point.prompt_tokens for point in front} == {16, 200}
    for point in front:
        for candidate in searched.candidates:
            for estimate in candidate.estimates if not candidate.by_cell else ():
                if estimate.prompt_tokens == point.prompt_tokens:
                    device = estimate.tokens_per_second.mean
                    user = device / estimate.batch
                    assert user <= point.per_user.mean or device <= point.per_device.mean


def test_the_front_falls_and_ends_at_both_extremes(searched: SearchResult) -> None:
    for length in (16, 200):
        front = [p for p in pareto_front(searched.candidates) if p.prompt_tokens == length]
        users = [point.per_user.mean for point in front]
        devices = [point.per_device.mean for point in front]
        assert users == sorted(users, reverse=True) and devices == sorted(devices)
        assert front[0].batch == 1 and front[-1].batch == 256 and len(front) > 2
        for point in front:
            assert point.per_device.mean == pytest.approx(point.batch * point.per_user.mean)
            assert point.per_user.low <= point.per_user.mean <= point.per_user.high


def test_the_front_is_all_that_nothing_beats(searched: SearchResult) -> None:
    """By comparing every plan and batch with every other one."""
    points = [
        (e.prompt_tokens, e.tokens_per_second.mean / e.batch,
         e.tokens_per_second.mean)
        for c in searched.candidates if c.admissible and not c.by_cell for e in c.estimates
    ]  # fmt: skip
    unbeaten = {
        (length, user, device)
        for length, user, device in points
        if not any(
            other == length and u >= user and d >= device and (u > user or d > device)
            for other, u, d in points
        )
    }
    front = {(p.prompt_tokens, p.per_user.mean, p.per_device.mean) for p in searched.pareto}
    assert front == unbeaten


def test_the_front_is_given_in_words_and_as_data(searched: SearchResult) -> None:
    data = explain(searched)
    assert [entry["batch"] for entry in data["pareto"]] == [p.batch for p in searched.pareto]
    lines = [line for line in explain_words(data) if line.startswith("No plan is faster both")]
    assert len(lines) == 2 and "prompts of 16" in lines[0] and "prompts of 200" in lines[1]
    for length, line in zip((16, 200), lines, strict=True):
        front = [p for p in searched.pareto if p.prompt_tokens == length]
        for point in (front[0], front[-1]):
            summary = {"method": point.candidate.method, "words": point.candidate.words}
            assert f"batch {point.batch}, {plan_name(summary)}" in line
