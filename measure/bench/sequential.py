"""Is one program slower than another? A test that stops as soon as the evidence suffices.

Base and head do the same work in pairs, in an order that a fair coin draws. Where the head takes
exp(c) times as long as the base, the log ratio of a pair is c plus the difference of what the
machine did to the two runs; by the coin that difference is as likely as its negative, whatever went
before. So a bet at even odds on the sign of (log ratio - c) wins nothing on average, however heavy
the tails, however long a disturbance lasts and however much it slows both. What a gambler has after
some pairs is a non-negative martingale: it ever grows by a factor 1 / error with a probability of
`error` at most (Ville 1939). A gambler who did is evidence against c, at any time one looks.

For every c two gamblers bet, one that the ratio is above it, one below. The c that no gambler has
refuted are an interval which holds the true one at all times with the confidence asked for (a
confidence sequence by betting: Waudby-Smith and Ramdas 2024, arXiv 2010.09686; Howard et al. 2021,
arXiv 1810.08240, for symmetric differences). Stakes suit a head that is slower by exactly the
slow-down to detect; with them the test is Wald's sequential probability ratio test (1945) of no
slow-down against that one, near enough, for normal differences. Differences are clipped at twice
their usual size before a bet, as in Huber's location M-estimate (1964).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Verdict: TypeAlias = Literal["slower", "not slower", "undecided"]
Floats: TypeAlias = NDArray[np.float64]

ERROR = 0.025
"""Probability of either wrong decision, at most."""
LARGEST_BET = 0.8
"""Largest fraction of a gambler's capital that a pair may cost: outliers must not end the game."""
CLIPPED_AT = 2.0
"""Differences are clipped at this many times their usual size."""
GUESS, GUESS_WEIGHT = 2.0, 4.0
"""Prior size of differences, in units of the slow-down, and its weight in pairs."""
LEAST_EVIDENCE = 10.0
"""Odds from which an unfinished test is decided by the better evidence; one pair gives 9."""
_NORMAL = 1.4826
"""Standard deviation of normal numbers over their median absolute deviation."""


@dataclass(frozen=True)
class Rule:
    """The slow-down to detect and the error rate of a test.

    Attributes:
        slowdown: relative slow-down to detect, e.g. 0.05.
        error: largest probability of missing it, and of a false alarm.
    """

    slowdown: float = 0.05
    error: float = ERROR

    @property
    def shift(self) -> float:
        """The slow-down as a log ratio."""
        return math.log1p(self.slowdown)


@dataclass(frozen=True)
class Judgement:
    """The decision by some pairs.

    Attributes:
        verdict: `slower` by the slow-down of the rule, `not slower` by as much, or `undecided`.
        sure: the test has stopped; else the pairs ran out, and the better evidence decided.
        ratio: time of the head over that of the base, median over pairs.
        low: lower bound of the ratio, valid at any time with the confidence of the rule; 0 if
            nothing is ruled out yet.
        high: upper bound, infinite if nothing is ruled out yet.
        odds: evidence for the slow-down over evidence for none.
        pairs: their number.
    """

    verdict: Verdict
    sure: bool
    ratio: float
    low: float
    high: float
    odds: float
    pairs: int

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; None for an infinite bound."""
        return asdict(self) | {"high": self.high if math.isfinite(self.high) else None}


class Evidence:
    """The evidence of the log ratios of pairs so far.

    Args:
        rule: of the test.

    Attributes:
        centres: log ratios that are bet on, ascending; 0 and the slow-down among them.
        log_ratios: taken so far.
        above: log capital of the gamblers on "the ratio is above this centre", [centres].
        below: the same for "below".
        low: largest centre that is refuted as too low, -inf for none.
        high: smallest centre that is refuted as too high, inf for none.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        spaced = rule.shift * np.sinh(np.linspace(-6.0, 6.0, 241))
        self.centres: Floats = np.unique(np.concatenate([spaced, [0.0, rule.shift]]))
        self.log_ratios: list[float] = []
        self.low, self.high = -math.inf, math.inf
        self.above: Floats = np.zeros(len(self.centres))
        self.below: Floats = np.zeros(len(self.centres))
        self._none, self._slower = np.searchsorted(self.centres, [0.0, rule.shift])

    def take(self, log_ratio: float) -> None:
        """Add a pair: log of the head's time over the base's."""
        stake, reach = stakes(self.log_ratios, self.rule.shift)
        won = stake * np.clip(log_ratio - self.centres, -reach, reach)
        bets = LARGEST_BET * np.tanh(won / LARGEST_BET)
        self.above += np.log1p(bets)
        self.below += np.log1p(-bets)
        self.log_ratios.append(log_ratio)
        refuted = -math.log(self.rule.error)
        self.low = max([self.low, *self.centres[self.above >= refuted][-1:].tolist()])
        self.high = min([self.high, *self.centres[self.below >= refuted][:1].tolist()])

    @property
    def decided(self) -> bool:
        """Whether no slow-down, or the slow-down, is refuted."""
        return self.low >= 0.0 or self.high <= self.rule.shift

    def judgement(self) -> Judgement:
        """The decision; that of an unfinished test is by the better evidence if it is strong."""
        odds = float(self.above[self._none] - self.below[self._slower])
        verdict: Verdict = "undecided"
        if self.low >= 0.0 or (not self.decided and odds >= math.log(LEAST_EVIDENCE)):
            verdict = "slower"
        elif self.high <= self.rule.shift or odds <= -math.log(LEAST_EVIDENCE):
            verdict = "not slower"
        return Judgement(
            verdict=verdict,
            sure=self.decided,
            ratio=math.exp(np.median(self.log_ratios)) if self.log_ratios else 1.0,
            low=math.exp(self.low),
            high=math.exp(self.high),
            odds=math.exp(min(max(odds, -700.0), 700.0)),
            pairs=len(self.log_ratios),
        )


def stakes(past: Sequence[float], shift: float) -> tuple[float, float]:
    """The stake per unit of log ratio, and where to clip, from the pairs before.

    The stake is the mean over the mean square of the clipped difference, under the slow-down: the
    gambler's capital grows fastest by it while bets are small (Kelly 1956). Before there are pairs,
    differences are guessed to be twice the slow-down; the guess weighs as much as four pairs.

    Args:
        past: log ratios.
        shift: the slow-down as a log ratio.
    """
    guess, weight = (GUESS * shift) ** 2, GUESS_WEIGHT
    if len(past) < 3:
        return shift / guess, CLIPPED_AT * math.sqrt(guess)
    values = np.asarray(past)
    distances = np.abs(values - np.median(values))
    usual = _NORMAL * float(np.median(distances))
    count, known = len(values), weight + len(values)
    reach = CLIPPED_AT * math.sqrt((weight * guess + count * usual**2) / known)
    square = (weight * guess + count * float(np.mean(np.minimum(distances, reach) ** 2))) / known
    inside = (weight + float(np.sum(distances < reach))) / known
    return shift * inside / square, reach


def judge(log_ratios: Iterable[float], rule: Rule) -> Judgement:
    """Take log ratios until the test stops or they run out."""
    evidence = Evidence(rule)
    for log_ratio in log_ratios:
        evidence.take(log_ratio)
        if evidence.decided:
            break
    return evidence.judgement()
