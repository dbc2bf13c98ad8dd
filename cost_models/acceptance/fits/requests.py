"""Hazards, and how much requests differ, from histograms of accepted tokens by request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.fits.counts import fit_counts
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.intervals import HALF_WIDTH_90

Floats = NDArray[np.float64]
Histogram = Mapping[int, Sequence[float]]
"""Drafted tokens k -> rounds that accepted 0, 1, ... k of them; the bonus is not counted."""


@dataclass(frozen=True, eq=False)
class RequestCounts:
    """What each request accepted.

    Attributes:
        accepted: [requests, depth], the first column depth 1.
        trials: tokens judged whose elders were all accepted, [requests, depth].
        rounds: [requests].
    """

    accepted: Floats
    trials: Floats
    rounds: Floats

    @classmethod
    def of(cls, requests: Sequence[Histogram]) -> RequestCounts:
        """Count: a round tries depth d when it drafted d tokens and accepted d - 1."""
        deepest = max((drafted for request in requests for drafted in request), default=0)
        accepted, trials = np.zeros((2, len(requests), deepest))
        rounds = np.zeros(len(requests))
        for row, request in enumerate(requests):
            for drafted, histogram in request.items():
                at_least = np.cumsum(np.asarray(histogram, dtype=np.float64)[::-1])[::-1]
                rounds[row] += at_least[0] if len(at_least) else 0.0
                depth = min(drafted, len(at_least))
                trials[row, :depth] += at_least[:depth]
                depth = min(drafted, len(at_least) - 1)
                accepted[row, :depth] += at_least[1 : depth + 1]
        return cls(accepted, trials, rounds)

    @property
    def correlation(self) -> float:
        """Correlation of two judged tokens of one request: 0 when requests are alike.

        Moment estimator of the analysis of variance for proportions in clusters (Ridout,
        Demetrio and Firth 1999, Biometrics 55, 137-148); clipped to [0, 0.99].
        """
        judged, accepted = self.trials.sum(axis=1), self.accepted.sum(axis=1)
        judged, accepted = judged[judged > 0], accepted[judged > 0]
        requests, total = len(judged), judged.sum()
        if requests < 2 or total <= requests:
            return 0.0
        rates, mean = accepted / judged, accepted.sum() / total
        between = float((judged * (rates - mean) ** 2).sum() / (requests - 1))
        within = float((judged * rates * (1.0 - rates)).sum() / (total - requests))
        size = float((total - (judged**2).sum() / total) / (requests - 1))
        spread = between + (size - 1.0) * within
        return min(0.99, max(0.0, (between - within) / spread)) if spread > 0 else 0.0

    @property
    def heterogeneity(self) -> tuple[float, float] | None:
        """Beta(a, b) of the requests' acceptance, by moments; None where they are alike."""
        correlation = self.correlation
        if correlation < 1e-6:
            return None
        mean = float(self.accepted.sum() / self.trials.sum())
        concentration = 1.0 / correlation - 1.0
        return mean * concentration, (1.0 - mean) * concentration

    @property
    def design_effect(self) -> float:
        """By how much likeness within requests inflates the variance of the mean length, >= 1.

        Variance of a ratio over clusters by linearisation (Cochran 1977, section 6.3), with the
        leading term of Student's quantile for few of them, against that of as many rounds that
        have nothing to do with each other.
        """
        requests = int((self.rounds > 0).sum())
        trials = self.trials.sum(axis=0)
        hazards = self.accepted.sum(axis=0) / np.maximum(trials, 1e-300)
        if requests < 2 or not hazards.any():
            return 1.0
        accepted, rounds = self.accepted.sum(axis=1), self.rounds
        missed = accepted - rounds * accepted.sum() / rounds.sum()
        clustered = requests / (requests - 1) * (missed**2).sum() / rounds.sum() ** 2
        clustered *= 1.0 + (HALF_WIDTH_90**2 + 1.0) / (2.0 * (requests - 1))
        reached = np.cumprod(hazards)
        slopes = np.cumsum(reached[::-1])[::-1] / np.maximum(hazards, 1e-300)
        alone = (slopes**2 * hazards * (1.0 - hazards) / np.maximum(trials, 1e-300)).sum()
        return max(1.0, float(clustered / alone)) if alone > 0 else 1.0


def fit_requests(
    requests: Sequence[Histogram],
    key: AcceptanceKey,
    provenance: Mapping[str, Any] | None = None,
) -> AcceptanceProfile:
    """Hazards pooled over requests, their counts divided by the design effect.

    Rounds of one request resemble each other: as evidence about the next request, a thousand
    rounds of one are worth less than ten of each of a hundred.

    Args:
        requests: one histogram, or one by drafted tokens, for each request.
        key: what the profile is about.
        provenance: how the histograms came about.

    Raises:
        UsageError: nothing was drafted.
    """
    counts = RequestCounts.of(requests)
    facts = {
        **(provenance or {}),
        "requests": len(requests),
        "rounds": float(counts.rounds.sum()),
        "rounds_assumed": False,
        "request_beta": counts.heterogeneity,
        "design_effect": counts.design_effect,
    }
    effect = counts.design_effect
    accepted, judged = counts.accepted.sum(axis=0) / effect, counts.trials.sum(axis=0) / effect
    return fit_counts(accepted.tolist(), judged.tolist(), key, facts)
