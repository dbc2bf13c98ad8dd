"""Bounds and tests of losses, held against draws of a known rate and against textbook forms."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from specplan.cost_models.quality.bounds import binomial_tail, p_value, upper_bound
from specplan.cost_models.quality.selection import shown_to_keep

SAMPLES, DRAWS, RISK = 300, 1000, 0.05


@pytest.mark.parametrize("rate", [0.01, 0.03, 0.05, 0.2, 0.5])
def test_bounds_of_known_rates_fail_as_rarely_as_they_say(rate: float) -> None:
    """Of 1,000 draws at most 6.5 % exceed their bound, whose median is at most 0.05 too high."""
    losses = np.random.default_rng(7).binomial(SAMPLES, rate, DRAWS)
    of_count = {n: upper_bound([1.0] * n + [0.0] * (SAMPLES - n), RISK) for n in set(losses)}
    bounds = np.array([of_count[count] for count in losses])
    assert np.mean(bounds < rate) <= 0.065
    assert 0.0 < np.median(bounds) - rate <= 0.05
    count = int(losses[0])
    exact = beta.ppf(1.0 - RISK, count + 1, SAMPLES - count)
    assert of_count[count] == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("shape", [(0.5, 9.5), (2.0, 38.0)])
def test_bounds_of_losses_between_0_and_1_hold_too(shape: tuple[float, float]) -> None:
    """Of a mean of 0.05, whatever the distribution."""
    rows = np.random.default_rng(8).beta(*shape, (DRAWS // 5, SAMPLES))
    bounds = np.array([upper_bound(row.tolist(), RISK) for row in rows])
    assert np.mean(bounds < 0.05) <= RISK
    assert np.median(bounds) - 0.05 <= 0.06


def test_a_p_value_is_the_exact_tail_of_a_binomial() -> None:
    """In fractions; and nothing is shown without losses, or by losses outside of [0, 1]."""
    rate, count, samples = Fraction(1, 20), 3, 40
    tail = sum(comb(samples, k) * rate**k * (1 - rate) ** (samples - k) for k in range(count + 1))
    assert binomial_tail(samples, count, float(rate)) == pytest.approx(float(tail), rel=1e-12)
    assert p_value([1.0] * 3 + [0.0] * 37, 0.05) == pytest.approx(float(tail), rel=1e-12)
    assert p_value([], 0.05) == upper_bound([], RISK) == 1.0
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        p_value([2.0], 0.05)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40), st.floats(0.01, 0.99))
def test_a_bound_is_where_the_p_value_meets_the_risk(losses: list[float], limit: float) -> None:
    """Whatever is above the bound is rejected; p-values fall as the limit rises."""
    bound = upper_bound(losses, RISK)
    assert sum(losses) / len(losses) <= bound + 1e-9
    if limit > bound + 1e-6:
        assert p_value(losses, limit) <= RISK + 1e-9
    assert p_value(losses, limit) >= p_value(losses, min(0.999, limit + 0.01)) - 1e-9


def holm(values: list[float], risk: float) -> set[int]:
    """Bonferroni and Holm's step-down procedure, as in a textbook."""
    rejected: set[int] = set()
    for step, place in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        if values[place] > risk / (len(values) - step):
            break
        rejected.add(place)
    return rejected


@given(st.lists(st.sampled_from((0.001, 0.008, 0.012, 0.02, 0.04, 0.06, 0.5)), max_size=7))
def test_selection_is_holm_and_fixed_sequence_where_these_are_meant(values: list[float]) -> None:
    """Sequences of one setting are tested as Holm does, one sequence up to its first failure."""
    alone = shown_to_keep([[value] for value in values], RISK)
    assert {place for place, count in enumerate(alone) if count} == holm(values, RISK)
    (count,) = shown_to_keep([values], RISK)
    failing = [place for place, value in enumerate(values) if value > RISK]
    assert count == (failing[0] if failing else len(values))


def test_all_wrong_settings_together_are_shown_as_rarely_as_one() -> None:
    """Three sequences whose every loss is at the limit: the risk holds for all of them together."""
    random, wrong = np.random.default_rng(9), 0
    for _ in range(400):
        counts = np.sort(random.binomial(SAMPLES, 0.05, (3, 4)), axis=1)[:, ::-1]
        values = [[binomial_tail(SAMPLES, int(n), 0.05) for n in row] for row in counts]
        wrong += any(shown_to_keep(values, RISK))
    assert wrong / 400 <= RISK + 0.02
