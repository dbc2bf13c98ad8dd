"""The standing of a contest, from numbers alone: who leads, who may drop out, and how surely."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from specplan.measure.tuning.elimination import (
    FIRST_TURNS,
    PRICE_ERROR,
    TIE,
    chance_below,
    promising,
    stand,
)

DRAWS = 400


def prior_of(seconds: list[float], spread: float, seed: int = 0) -> np.ndarray:
    """Draws of prices that err independently by `spread`."""
    normal = np.random.default_rng(seed).standard_normal((DRAWS, len(seconds)))
    normal = (normal - normal.mean(0)) / normal.std(0)
    return np.log(np.array(seconds)) + spread * normal


def test_before_any_run_prices_say_who_is_promising() -> None:
    prior = prior_of([1.0, 1.02, 1.5], 0.05)
    assert promising(prior).tolist() == [True, True, False]
    standing = stand(prior, np.full((0, 3), np.nan), 0.1)
    assert standing.leader == 0 and standing.seconds == pytest.approx(1.0)
    assert standing.ratio == pytest.approx(np.log([1.0, 1.02, 1.5]), abs=1e-9)
    assert standing.alive.all(), "nobody has had a turn"
    assert not standing.decided
    half = np.log1p(standing.level) / 1.6449
    assert half == pytest.approx(np.sqrt(0.05**2 + PRICE_ERROR**2 + (0.1 / 1.6449) ** 2))


def test_totals_count_and_not_the_mean_of_ratios() -> None:
    """One plan is quicker on most prompts and very slow on some: in all it takes longer."""
    uneven = np.array([0.6, 0.6, 0.6, 3.0] * 10)
    times = np.stack([uneven, np.ones(40)], axis=1)
    assert np.log(uneven).mean() < 0.0 < np.log(uneven.mean())
    standing = stand(prior_of([1.0, 1.0], 0.5), times, 0.0)
    assert standing.leader == 1
    assert 0.0 < standing.ratio[0] <= np.log(uneven.mean()) + 1e-9


def test_a_price_gives_way_to_what_contradicts_it() -> None:
    rng = np.random.default_rng(1)
    times = np.exp(0.02 * rng.standard_normal((12, 2))) * [1.0, 1.3]
    sure_and_wrong = prior_of([1.0, 0.5], 0.01)
    standing = stand(sure_and_wrong, times, 0.0)
    assert standing.leader == 0
    assert standing.ratio[1] == pytest.approx(np.log(1.3), abs=0.02)
    assert standing.decided


def test_pairs_count_only_common_turns() -> None:
    """A turn of hard prompts that one plan did not run does not make the other look slow."""
    times = np.array([[1.0, 1.1], [1.0, 1.1], [1.0, 1.1], [9.0, np.nan]])
    standing = stand(prior_of([1.0, 1.0], 0.2), times, 0.0)
    assert standing.leader == 0 and standing.ratio[1] == pytest.approx(np.log(1.1), abs=0.03)
    assert standing.turns.tolist() == [4, 3]


def test_few_turns_end_nothing_and_ties_end() -> None:
    prior = prior_of([1.0, 2.0], 0.3)
    slow = np.array([[1.0, 3.0]] * (FIRST_TURNS - 1))
    assert stand(prior, slow, 0.0).alive.all()
    assert stand(prior, np.array([[1.0, 3.0]] * FIRST_TURNS), 0.0).decided
    rng = np.random.default_rng(2)
    equal = np.exp(0.02 * rng.standard_normal((200, 2)))
    assert stand(prior_of([1.0, 1.0], 0.3), equal, 0.0).decided, "faster by less is no gain"


def test_chances_of_plans_that_did_not_run() -> None:
    gaps = prior_of([1.0], 0.04)[:, 0]
    assert chance_below(gaps) == pytest.approx(0.4207, abs=1e-3)  # Phi(-0.01 / 0.05)
    assert chance_below(gaps + 1.0) < 1e-6 < 1.0 - 1e-6 < chance_below(gaps - 1.0)


def contest(rng: np.random.Generator, count: int = 6, noise: float = 0.06) -> tuple[float, int]:
    """Prices, truths and turns as the model says they are; the loss, and the runs it took."""
    wrong = 0.1 * rng.standard_normal(count)
    truth = np.exp(wrong) * np.linspace(1.0, 1.15, count)
    prior = prior_of(np.linspace(1.0, 1.15, count).tolist(), 0.1, int(rng.integers(1 << 30)))
    times = np.full((0, count), np.nan)
    for _ in range(40):
        standing = stand(prior, times, 0.0)
        if standing.decided:
            break
        common, own = 0.3 * rng.standard_normal(), noise * rng.standard_normal(count)
        row = truth * np.exp(common + own)
        times = np.vstack([times, np.where(standing.alive, row, np.nan)])
    leader = stand(prior, times, 0.0).leader
    return float(truth[leader] / truth.min() - 1.0), int((~np.isnan(times)).sum())


def test_the_winner_is_seldom_beaten_by_more_than_a_tie() -> None:
    """100 contests: loss within a tie in nine of ten, with a third of the runs of a full grid."""
    rng = np.random.default_rng(5)
    losses, runs = np.array([contest(rng) for _ in range(100)]).T
    assert (losses <= TIE).mean() >= 0.9
    assert losses.mean() < 0.3 * TIE
    assert runs.mean() < 40 * 6 / 3
