"""Break-even points read off the speedups of a priced plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.intervals import Interval
from specplan.planner.explain.priced_break_even import Edge, priced_break_even

X = np.linspace(0.0, 10.0, 101)


def curve(mean: object, low: object, high: object) -> Interval:
    return Interval(np.asarray(mean), np.asarray(low), np.asarray(high))  # type: ignore[arg-type]


@given(st.floats(1.0, 9.0), st.floats(0.05, 0.9))
def test_a_rising_speedup_has_one_edge_with_its_interval(edge: float, spread: float) -> None:
    point = priced_break_even(X, curve(1 + X - edge, 1 + X - edge - spread, 1 + X - edge + spread))
    ((start, end),) = point.pays
    assert end is None and start is not None
    assert start.mean == pytest.approx(edge)
    assert start.low == pytest.approx(edge - spread)
    assert start.high == pytest.approx(edge + spread)
    assert point.surely[0][0] == start.high and point.perhaps[0][0] == start.low


def test_a_falling_speedup_stops_paying() -> None:
    point = priced_break_even(X, curve(1.5 - X / 10, 1.2 - X / 10, 1.8 - X / 10))
    assert point.pays == ((None, Edge(pytest.approx(5.0), pytest.approx(2.0), pytest.approx(8.0))),)


def test_bounds_outside_of_what_was_looked_at_are_open() -> None:
    point = priced_break_even(X, curve(1.5 - X / 10, 0.9 - X / 10, 3.0 - X / 10))
    assert point.pays == ((None, Edge(pytest.approx(5.0), None, None)),)
    assert point.surely == ()


def test_everywhere_and_nowhere() -> None:
    high = curve(2.0 + 0 * X, 1.5 + 0 * X, 3.0 + 0 * X)
    assert priced_break_even(X, high).always and not priced_break_even(X, high).never
    low = curve(0.5 + 0 * X, 0.4 + 0 * X, 1.5 + 0 * X)
    point = priced_break_even(X, low)
    assert point.never and point.perhaps == ((0.0, 10.0),)


def test_whole_values_are_the_last_that_pay() -> None:
    sizes = [1, 2, 4, 8, 16, 32, 64]
    rate = np.array([0.9, 1.5, 1.4, 1.3, 1.1, 0.9, 0.8])
    ((start, end),) = priced_break_even(sizes, curve(rate, rate, rate), whole=True).pays
    assert start is not None and end is not None
    assert start.mean == 2 and 16 < end.mean < 32 and end.mean == int(end.mean)


def test_a_gap_gives_two_stretches() -> None:
    rate = 1.0 + np.cos(X)
    point = priced_break_even(X, curve(rate, rate - 0.1, rate + 0.1))
    (_, first), (second, third) = point.pays
    assert first is not None and second is not None and third is not None
    assert (first.mean, second.mean, third.mean) == pytest.approx(
        (np.pi / 2, 3 * np.pi / 2, 5 * np.pi / 2), abs=0.01
    )
    for edge in (first, second, third):
        assert edge.low is not None and edge.high is not None
        assert edge.low < edge.mean < edge.high
