"""The sequential test: exact under enumeration, right often enough under heavy tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.measure.bench.sequential import LARGEST_BET, Evidence, Rule, judge, stakes

RULE = Rule(0.05)
MAGNITUDES = (0.02, 0.9, 0.05, 0.001, 0.11, 0.3, 0.04, 0.07, 0.2)


def sequences(shift: float) -> list[list[float]]:
    """Every way in which fair coins sign these differences around a true log ratio."""
    return [
        [shift + sign * size for sign, size in zip(signs, MAGNITUDES, strict=True)]
        for signs in product((-1.0, 1.0), repeat=len(MAGNITUDES))
    ]


@pytest.mark.parametrize("truth", ["none", "slower"])
def test_capital_is_a_martingale_and_wrong_decisions_are_rare_exactly(truth: str) -> None:
    """By enumeration: the mean capital is 1, and refuting the truth is as rare as promised."""
    rule = Rule(0.05, error=0.2)
    true = 0.0 if truth == "none" else rule.shift
    capitals, wrong = [], 0
    every = sequences(true)
    for sequence in every:
        evidence = Evidence(rule)
        centre = int(np.flatnonzero(evidence.centres == true)[0])
        for log_ratio in sequence:
            evidence.take(log_ratio)
        capitals.append((math.exp(evidence.above[centre]), math.exp(evidence.below[centre])))
        wrong += evidence.low >= true if truth == "none" else evidence.high <= true
    assert np.mean(capitals, axis=0) == pytest.approx([1.0, 1.0], abs=1e-9)
    assert 0 < wrong <= rule.error * len(every)


def bursts(draws: np.random.Generator, size: int) -> np.ndarray:
    """Differences of two runs on a machine that another program slows for spells of random length.

    Half of all runs lie in a spell; the two of a pair take places by a fair coin.
    """
    state = (np.cumsum(draws.random(2 * size) < 0.2) + draws.integers(2)) % 2
    logs = state * draws.exponential(0.15, 2 * size) + draws.normal(0.0, 0.02, 2 * size)
    signs = np.where(draws.random(size) < 0.5, 1.0, -1.0)
    return signs * (logs[0::2] - logs[1::2])


NOISES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda draws, size: draws.normal(0.0, 0.05, size),
    "quiet": lambda draws, size: draws.normal(0.0, 0.002, size),
    "t with 2 degrees": lambda draws, size: 0.04 * draws.standard_t(2, size),
    "Cauchy": lambda draws, size: 0.02 * draws.standard_cauchy(size),
    "bursts": bursts,
}


@pytest.mark.parametrize("noise", NOISES)
def test_both_errors_are_rare_whatever_the_noise(noise: str) -> None:
    draws, trials = np.random.default_rng(7), 40
    for true, wrong in ((0.0, "slower"), (RULE.shift, "not slower")):
        verdicts = [judge(true + NOISES[noise](draws, 300), RULE) for _ in range(trials)]
        assert sum(one.verdict == wrong for one in verdicts) <= 0.05 * trials
        assert np.mean([one.sure for one in verdicts]) > 0.95
        covered = [one.low <= math.exp(true) <= one.high for one in verdicts]
        assert np.mean(covered) >= 0.95


def test_few_pairs_suffice_on_a_quiet_machine() -> None:
    for true, verdict in ((0.0, "not slower"), (RULE.shift, "slower"), (0.5, "slower")):
        verdict_of_pairs = judge([true] * 100, RULE)
        assert (
            verdict_of_pairs.verdict == verdict
            and verdict_of_pairs.sure
            and verdict_of_pairs.pairs <= 12
        )
        assert verdict_of_pairs.ratio == pytest.approx(math.exp(true))


def test_what_runs_out_is_decided_by_the_better_evidence_or_not_at_all() -> None:
    assert judge([], RULE).verdict == "undecided"
    halfway = judge([RULE.shift / 2.0] * 6, RULE)
    assert halfway.verdict == "undecided" and halfway.odds == pytest.approx(1.0)
    for true, verdict in ((0.0, "not slower"), (RULE.shift, "slower")):
        judged = judge([true] * 9, RULE)
        assert judged.verdict == verdict and not judged.sure
    assert judge([0.0], RULE).as_dict()["high"] is None


def test_a_head_that_is_faster_raises_no_alarm() -> None:
    draws = np.random.default_rng(3)
    verdicts = [judge(math.log(0.9) + 0.05 * draws.standard_t(2, 200), RULE) for _ in range(30)]
    assert {one.verdict for one in verdicts} == {"not slower"}


@given(st.lists(st.floats(-5.0, 5.0), max_size=25))
def test_no_pair_costs_more_than_it_may_and_bounds_only_tighten(log_ratios: list[float]) -> None:
    evidence = Evidence(RULE)
    for log_ratio in log_ratios:
        low, high = evidence.low, evidence.high
        above, below = evidence.above.copy(), evidence.below.copy()
        evidence.take(log_ratio)
        for before, after in ((above, evidence.above), (below, evidence.below)):
            assert np.all(after - before >= math.log1p(-LARGEST_BET) - 1e-12)
            assert np.all(after - before <= math.log1p(LARGEST_BET) + 1e-12)
        assert np.all(np.diff(evidence.above) <= 1e-9) and np.all(np.diff(evidence.below) >= -1e-9)
        assert evidence.low >= low and evidence.high <= high


@given(st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=40), st.floats(0.01, 0.3))
def test_stakes_know_the_past_up_to_a_common_slow_down(past: list[float], shift: float) -> None:
    stake, reach = stakes(past, shift)
    assert stake > 0.0 and reach > 0.0
    moved = stakes([x + 0.7 for x in past], shift)
    assert moved == pytest.approx((stake, reach), rel=1e-6)
