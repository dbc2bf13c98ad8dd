"""How acceptance grows with training: saturating curves by position, and what they predict.

At position k, P(accepted | those before were) after n steps is a_k(n) = a - b n^-c (a limit and a
power law, as losses have: Hestness et al. 2017, arXiv 1712.00409; of acceptance, no law is
published). For every c of a grid, a and b are a Bayesian linear regression whose variances are
those of the counts; draws from all of them, by their evidence, give intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.intervals import Interval

Floats = NDArray[np.float64]
EXPONENTS = np.geomspace(0.15, 2.5, 24)
"""Exponents c that are thought equally likely; losses of models have 0.1 to 1."""
LIMIT = (0.6, 0.4)
"""Mean and deviation of a before anything is known: anywhere between 0 and 1."""
RISE = 2.0
"""Deviation of b (n / first n)^-c at the first point, around 0: a curve may also fall."""
DRAWS = 400
LEAST_POINTS = 3
"""Points that a curve needs."""


@dataclass(frozen=True)
class Evaluation:
    """What a head accepted on held-out texts after some steps.

    Attributes:
        steps: of training.
        reached: rounds in which position 1, 2, ... was judged.
        accepted: how many of these accepted it, by position and rank.
    """

    steps: int
    reached: tuple[int, ...]
    accepted: tuple[tuple[int, ...], ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """The inverse of `dataclasses.asdict`, also from JSON."""
        rows = tuple(tuple(row) for row in data["accepted"])
        return cls(int(data["steps"]), tuple(data["reached"]), rows)

    @property
    def rates(self) -> Floats:
        """P(best rank accepted | those before were), by position."""
        first = np.array([row[0] for row in self.accepted], dtype=np.float64)
        return first / np.maximum(np.array(self.reached, dtype=np.float64), 1.0)

    def hazards(self, rates: Floats) -> list[list[float]]:
        """Rows of `AcceptanceProfile.from_hazards` at other rates of the best rank.

        Further ranks keep their share of what the best one leaves.
        """
        rows = list[list[float]]()
        for rate, count, ranks in zip(rates, self.reached, self.accepted, strict=True):
            others = max(count - ranks[0], 1)
            rows.append([float(rate), *((1.0 - rate) * rank / others for rank in ranks[1:])])
        return rows


@dataclass(frozen=True)
class Curve:
    """One position's acceptance by steps.

    Attributes:
        steps: of the points, rising.
        rates: there.
        counts: rounds behind each.
    """

    steps: tuple[int, ...]
    rates: tuple[float, ...]
    counts: tuple[int, ...]

    @cached_property
    def _draws(self) -> tuple[Floats, Floats, Floats]:
        """a, b and c of equally likely curves."""
        n = np.array(self.steps, dtype=np.float64) / self.steps[0]
        rates, counts = np.array(self.rates), np.array(self.counts, dtype=np.float64)
        smoothed = (rates * counts + 1.0) / (counts + 2.0)
        precision = (counts + 2.0) / (smoothed * (1.0 - smoothed))
        prior = np.diag([LIMIT[1] ** -2, RISE**-2])
        mean = np.array([LIMIT[0], 0.0])
        fits, evidence = [], []
        for exponent in EXPONENTS:
            design = np.stack([np.ones_like(n), -(n**-exponent)], 1)
            inverse = prior + design.T @ (precision[:, None] * design)
            covariance = np.linalg.inv(inverse)
            center = covariance @ (prior @ mean + design.T @ (precision * smoothed))
            left = smoothed - design @ center
            misfit = precision @ left**2 + (center - mean) @ prior @ (center - mean)
            evidence.append(-0.5 * misfit + 0.5 * np.linalg.slogdet(covariance)[1])
            fits.append((center, np.linalg.cholesky(covariance)))
        weights = np.exp(np.array(evidence) - max(evidence))
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(EXPONENTS), DRAWS, p=weights / weights.sum())
        normal = rng.standard_normal((DRAWS, 2))
        pairs = np.stack([fits[i][0] + fits[i][1] @ z for i, z in zip(chosen, normal, strict=True)])
        return pairs[:, 0], pairs[:, 1], EXPONENTS[chosen]

    def at(self, steps: float) -> Floats:
        """Equally likely rates after so many steps, within 0 and 1."""
        limit, rise, exponent = self._draws
        return np.clip(limit - rise * (steps / self.steps[0]) ** -exponent, 0.0, 1.0)

    def interval(self, steps: float) -> Interval:
        """Mean and 90 % interval of the rate after so many steps."""
        draws = self.at(steps)
        low, high = np.quantile(draws, (0.05, 0.95))
        return Interval(float(draws.mean()), float(low), float(high))


def curves_of(evaluations: Sequence[Evaluation]) -> tuple[Curve, ...]:
    """A curve for each position; at least `LEAST_POINTS` evaluations."""
    steps = tuple(one.steps for one in evaluations)
    rates = np.stack([one.rates for one in evaluations], 1)
    counts = zip(*(one.reached for one in evaluations), strict=True)
    return tuple(
        Curve(steps, tuple(map(float, row)), tuple(number))
        for row, number in zip(rates, counts, strict=True)
    )


def rates_at(curves: Sequence[Curve], steps: float) -> Floats:
    """Equally likely rates by draw and position, `[DRAWS, positions]`."""
    return np.stack([curve.at(steps) for curve in curves], 1)
