"""Intervals that are combined, and forecasts of runs of a few requests."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.forecast import Forecast
from specplan.cost_models.intervals import Interval, Seconds, side_by_side
from tests.cost_models.small_trees import chain

POSITIVE = st.floats(1e-6, 1e6)


@st.composite
def seconds(draw: st.DrawFn) -> Seconds:
    median = draw(POSITIVE)
    return Seconds(median, median * draw(st.floats(0, 1)), median * draw(st.floats(1, 3)))


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    mean = draw(POSITIVE)
    return Interval(mean, mean * draw(st.floats(0.1, 1)), mean * draw(st.floats(1, 3)))


@given(seconds(), intervals())
def test_independent_errors_combine_in_quadrature(time: Seconds, count: Interval) -> None:
    """Wider than either error alone, narrower than both extremes at once."""
    product = time.times(count)
    assert product.median == time.median * count.mean
    assert 0.0 <= product.low <= product.median <= product.high
    alone = (time.high / time.median - 1.0, count.high / count.mean - 1.0)
    assert product.high / product.median - 1.0 == pytest.approx(np.hypot(*alone), abs=1e-9)
    assert product.low >= min(time.low * count.low, 0.0)


def test_lanes_take_as_long_as_the_longest_and_what_it_does_not_hide() -> None:
    lanes = [Seconds(3.0, 2.0, 4.0), Seconds(1.0, 0.5, 6.0)]
    assert side_by_side(lanes, 1.0) == Seconds(3.0, 2.0, 6.0)
    assert side_by_side(lanes, 0.0) == Seconds(4.0, 2.5, 10.0)
    assert side_by_side(lanes, 0.75) == Seconds(3.25, 2.125, 7.0)
    grid = [Seconds(np.array([m, 1.0]), np.array([m, 1.0]), np.array([m, 1.0])) for m in (3.0, 5.0)]
    assert side_by_side(grid, 1.0).median.tolist() == [5.0, 1.0]  # type: ignore[attr-defined]


def test_a_forecast_of_few_requests_covers_them() -> None:
    """Prompts differ; 90 % of groups of 12 fall into the interval learned from 60 others."""
    rng = np.random.default_rng(1)
    alphas = rng.beta(6, 3, size=4000)
    traces = [np.where(rng.random(128) < alpha, 0, -1).tolist() for alpha in alphas]
    tree = chain(4)
    single = [profile(traces[i : i + 1]).rounds(*tree, 128).mean for i in range(1000, 4000)]
    covered, narrow = [], []
    for trial in range(50):
        known = profile(traces[trial * 20 : trial * 20 + 60])
        mean = known.rounds(*tree, 128)
        ahead = mean.predictive(known.prompts, 12)
        for group in range(5):
            start = (trial * 5 + group) * 12
            value = float(np.mean(single[start : start + 12]))
            covered.append(ahead.low <= value <= ahead.high)
            narrow.append(mean.low <= value <= mean.high)
    assert 0.84 <= np.mean(covered) <= 0.96
    assert np.mean(narrow) < 0.7


def profile(traces: list[list[int]]) -> AcceptanceProfile:
    return AcceptanceProfile(AcceptanceKey(Model("draft")), Ranks(tuple(map(tuple, traces))))


def test_a_forecast_survives_json() -> None:
    forecast = Forecast(
        2,
        64,
        Seconds(0.1, 0.09, 0.12),
        Seconds(0.01, 0.008, 0.013),
        Interval(30.0, 28.0, 33.0),
        120,
    )
    assert Forecast.from_dict(json.loads(json.dumps(asdict(forecast)))) == forecast
    mean, run = forecast.tokens_per_second(), forecast.tokens_per_second(24)
    assert mean.mean == run.mean == pytest.approx(128 / 0.4)
    assert run.low < mean.low < mean.mean < mean.high < run.high
    assert forecast.tokens_per_second(10**9).high == pytest.approx(mean.high)
