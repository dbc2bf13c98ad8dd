"""The front of speed per user against speed per device."""

from __future__ import annotations

import pytest

from specplan.planner.pareto import pareto_front
from specplan.planner.search import SearchResult, search
from tests.planner.example_facts import example_facts


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    lengths = {
        "batch_sizes": [1, 4, 32, 256],
        "prompt_lengths": [16, 200],
        "output_tokens": 32,
        "temperature": 0.0,
    }
    return search(example_facts(tmp_path_factory.mktemp("front"), workload=lengths))


def test_no_plan_beats_a_point_of_the_front_in_both(found: SearchResult) -> None:
    front = pareto_front(found.candidates)
    assert {point.prompt_tokens for point in front} == {16, 200}
    for point in front:
        for candidate in found.candidates:
            for estimate in candidate.estimates if not candidate.by_cell else ():
                if estimate.prompt_tokens == point.prompt_tokens:
                    device = estimate.tokens_per_second_end_to_end.mean
                    user = device / estimate.batch
                    assert user <= point.per_user.mean or device <= point.per_device.mean


def test_the_front_falls_and_ends_at_both_extremes(found: SearchResult) -> None:
    for length in (16, 200):
        front = [p for p in pareto_front(found.candidates) if p.prompt_tokens == length]
        users = [point.per_user.mean for point in front]
        devices = [point.per_device.mean for point in front]
        assert users == sorted(users, reverse=True) and devices == sorted(devices)
        assert front[0].batch == 1 and front[-1].batch == 256 and len(front) > 2
        for point in front:
            assert point.per_device.mean == pytest.approx(point.batch * point.per_user.mean)
            assert point.per_user.low <= point.per_user.mean <= point.per_user.high
