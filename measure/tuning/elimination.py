"""The leader of a race and the contenders that may still be faster: successive elimination.

Contenders take turns on the same prompts, so that their ratios are measured well. For a contender
and the leader, the ratio of their total seconds over common turns is the measurement, with the
standard error of a ratio of means over paired samples (the linearised residuals; Cochran 1977,
"Sampling Techniques", section 2.11). The model's estimate is the prior: mean and standard deviation
of the same ratio over draws of all uncertain quantities. Both are taken as normal in logarithms and
combined by precision; if they contradict each other, the prior is widened.

A contender drops out once it is sure enough that it beats the leader by no more than a tie. It
returns if a slower leader takes over. Nothing here has state: the same records give the same
standing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.intervals import HALF_WIDTH_90

Floats = NDArray[np.float64]

TIE = 0.01
"""A smaller gain counts as none, as in the search."""
DOUBT = 0.05
"""A contender drops out when it is faster than the leader by more than a tie with at most this
probability."""
FIRST_TURNS = 3
"""Turns of a contender before it may drop out."""
PRICE_ERROR = 0.03
"""Standard deviation of the estimate errors that the draws leave out, as a ratio of two plans."""
SCATTER, SCATTER_TURNS = 0.1, 2
"""Prior standard deviation of a turn's ratio, and the number of turns that this prior counts as."""
LEAST_ERROR = 0.002


@dataclass(frozen=True)
class Standing:
    """The state of a race; arrays are [contenders].

    Attributes:
        leader: index of the leader.
        ratio: logarithm of seconds over those of the leader.
        spread: its standard deviation.
        chance: probability of being faster than the leader by more than a tie.
        turns: of each contender.
        seconds: per output token, of the leader.
        level: relative half width of the 90 % interval of `seconds`, without the machine's drift.
    """

    leader: int
    ratio: Floats
    spread: Floats
    chance: Floats
    turns: NDArray[np.int64]
    seconds: float
    level: float

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Who is still in the race: the leader, and those with few turns or that may be faster."""
        alive: NDArray[np.bool_] = (self.turns < FIRST_TURNS) | (self.chance >= DOUBT)
        alive[self.leader] = True
        return alive

    @property
    def decided(self) -> bool:
        """Whether only the leader is left, after its first turns."""
        return int(self.alive.sum()) == 1 and bool(self.turns[self.leader] >= FIRST_TURNS)

    def error(self, contender: int) -> float:
        """Relative half width of the 90 % interval of its seconds over those of the leader."""
        return float(np.expm1(HALF_WIDTH_90 * self.spread[contender]))

    def seconds_of(self, contender: int) -> float:
        """Per output token."""
        return float(self.seconds * np.exp(self.ratio[contender]))


def chance_below(gaps: Floats) -> float:
    """P(faster than the leader by more than a tie) of a plan that has not run.

    Args:
        gaps: logarithm of its seconds over the leader's, under draws, [draws].
    """
    spread = np.hypot(gaps.std(), PRICE_ERROR)
    return float(_below(-TIE, np.array([gaps.mean()]), np.array([spread]))[0])


def promising(prior: Floats) -> NDArray[np.bool_]:
    """Contenders that may be the fastest by the estimates alone; `prior` as in `stand`."""
    standing = stand(prior, np.full((0, prior.shape[1]), np.nan), 0.0)
    likely: NDArray[np.bool_] = standing.chance >= DOUBT
    likely[standing.leader] = True
    return likely


def stand(prior: Floats, times: Floats, drift: float) -> Standing:
    """The standing of a race.

    Args:
        prior: logarithms of seconds per output token under draws of the uncertain quantities,
            which all contenders of a draw share, [draws, contenders].
        times: measured seconds per output token, nan where none, [turns, contenders].
        drift: relative half width of the 90 % interval of the error that all estimates share.
    """
    turns = (~np.isnan(times)).sum(axis=0)
    expected = prior.mean(axis=0)
    most = np.flatnonzero(turns == turns.max())
    reference = int(most[np.argmin(expected[most])])
    seen = np.flatnonzero(turns >= min(FIRST_TURNS, int(turns.max())))
    ratio, _ = _against(prior, times, reference)
    leader = int(seen[np.argmin(ratio[seen])])
    ratio, spread = _against(prior, times, leader)
    seconds, level = _level(prior[:, leader], times[:, leader], drift)
    return Standing(
        leader=leader,
        ratio=ratio,
        spread=spread,
        chance=_below(-TIE, ratio, spread),
        turns=turns,
        seconds=seconds,
        level=level,
    )


def _against(prior: Floats, times: Floats, reference: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the logarithm of every ratio to one contender."""
    gaps = prior - prior[:, [reference]]
    means, spreads = gaps.mean(axis=0), np.hypot(gaps.std(axis=0), PRICE_ERROR)
    for one in range(prior.shape[1]):
        pair = times[:, [one, reference]]
        pair = pair[~np.isnan(pair).any(axis=1)]
        if len(pair) and one != reference:
            shares = pair / pair.mean(axis=0)
            error = _standard_error(shares[:, 0] - shares[:, 1])
            measured = float(np.log(pair[:, 0].mean() / pair[:, 1].mean()))
            means[one], spreads[one] = _combined(means[one], spreads[one], measured, error)
    means[reference] = spreads[reference] = 0.0
    return means, spreads


def _level(prior: Floats, times: Floats, drift: float) -> tuple[float, float]:
    """Seconds per token of a contender, and the relative half width of their 90 % interval."""
    times = times[~np.isnan(times)]
    mean = float(prior.mean())
    spread = float(np.hypot(np.hypot(prior.std(), PRICE_ERROR), drift / HALF_WIDTH_90))
    if len(times):
        error = _standard_error(times / times.mean() - 1.0)
        mean, spread = _combined(mean, spread, float(np.log(times.mean())), error)
    return float(np.exp(mean)), float(np.expm1(HALF_WIDTH_90 * spread))


def _standard_error(residuals: Floats) -> float:
    """Of the mean of residuals about zero, as a normal error with Student's wider 90 % interval.

    Their variance is that of the residuals and of the guess, by the turns that each counts for.
    """
    from scipy.special import stdtrit

    count = len(residuals)
    degrees = SCATTER_TURNS + count - 1
    squares = SCATTER_TURNS * SCATTER**2 + float((residuals**2).sum())
    wider = float(stdtrit(degrees, 0.95)) / HALF_WIDTH_90
    return max(wider * float(np.sqrt(squares / degrees / count)), LEAST_ERROR)


def _combined(prior: float, spread: float, measured: float, error: float) -> tuple[float, float]:
    """Mean and standard deviation by precision.

    A prior that lies more than two standard deviations of the difference away is made so wide that
    it does not.
    """
    gap = abs(measured - prior)
    if gap > 2.0 * np.hypot(spread, error):
        spread = float(np.sqrt(gap**2 / 4.0 - error**2))
    weights = np.array([spread**-2, error**-2])
    mean = float(weights @ np.array([prior, measured]) / weights.sum())
    return mean, float(weights.sum() ** -0.5)


def _below(bound: float, mean: Floats, spread: Floats) -> Floats:
    """P(normal < bound); for a spread of 0, whether the mean is below."""
    from scipy.special import ndtr

    safe = np.where(spread > 0.0, spread, 1.0)
    probabilities: Floats = np.where(spread > 0.0, ndtr((bound - mean) / safe), mean < bound)
    return probabilities
