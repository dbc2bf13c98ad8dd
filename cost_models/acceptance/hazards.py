"""Conditional acceptance by depth and rank, counted in traces or given as a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.replay import Traces
from specplan.cost_models.intervals import Interval

MAX_DEPTH = 64
_BORROWED_TRIALS = 10.0
"""Weight, in trials, of the depth above in the estimate of a depth that is seldom reached."""


@dataclass(frozen=True, eq=False)
class HazardCounts:
    """How often each rank was accepted, by depth.

    Attributes:
        accepted: [depth, rank]; the first row is depth 1.
        trials: [depth]; positions reached by a round that accepted everything before.
    """

    accepted: NDArray[np.float64]
    trials: NDArray[np.float64]

    @classmethod
    def of_ranks(cls, traces: Traces) -> HazardCounts:
        """Count traces of accepted ranks; depth d needs d - 1 accepted positions before."""
        ranks, valid = traces.values, traces.valid
        if ranks.ndim == 3:
            return cls._by_depth(ranks, valid)
        before = np.zeros_like(ranks)
        for position in range(1, len(ranks)):
            grown = np.where(ranks[position - 1] >= 0, before[position - 1] + 1, 0)
            before[position] = grown
        widest = int(ranks.max(initial=0)) + 1
        deepest = min(MAX_DEPTH, int(before.max(initial=0)) + 1)
        accepted = np.zeros((deepest, widest))
        trials = np.zeros(deepest)
        for depth in range(deepest):
            reached = valid & (before >= depth)
            hits = ranks[reached & (ranks >= 0)]
            trials[depth] = reached.sum()
            accepted[depth] = np.bincount(hits, minlength=widest)
        return cls(accepted, trials)

    @classmethod
    def _by_depth(cls, ranks: NDArray[np.int64], valid: NDArray[np.bool_]) -> HazardCounts:
        """Count ranks [positions, prompts, depth]; one at depth d needs all above in its round."""
        widest, deepest = int(ranks.max(initial=0)) + 1, min(MAX_DEPTH, ranks.shape[2])
        accepted, trials = np.zeros((deepest, widest)), np.zeros(deepest)
        reached = valid.copy()
        for depth in range(deepest):
            at = ranks[..., depth]
            trials[depth] = reached.sum()
            accepted[depth] = np.bincount(at[reached & (at >= 0)], minlength=widest)
            onward = reached & (at >= 0)
            reached = np.zeros_like(reached)
            reached[1:] = onward[:-1] & valid[1:]
        return cls(accepted, trials)

    @classmethod
    def of_lengths(cls, traces: Traces) -> HazardCounts:
        """Count traces of accepted lengths: one rank, depth d is the d-th copied token."""
        lengths = np.maximum(traces.values[traces.valid], 0)
        deepest = min(MAX_DEPTH, int(lengths.max(initial=0)) + 1)
        at_least = np.array([(lengths >= depth).sum() for depth in range(deepest + 1)], dtype=float)
        return cls(at_least[1:, None], at_least[:-1])

    def counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) of a depth >= 1 and a rank >= 0; (0, 0) where never reached."""
        if not 1 <= depth <= len(self.trials):
            return 0.0, 0.0
        row = self.accepted[depth - 1]
        return (float(row[rank]) if rank < len(row) else 0.0), float(self.trials[depth - 1])

    def table(self) -> NDArray[np.float64]:
        """Hazards [depth, rank]; seldom reached depths borrow from the depth above."""
        hazards = np.zeros_like(self.accepted)
        above = self.accepted[0] / max(self.trials[0], 1.0)
        hazards[0] = above
        for depth in range(1, len(self.trials)):
            borrowed = self.accepted[depth] + _BORROWED_TRIALS * above
            above = hazards[depth] = borrowed / (self.trials[depth] + _BORROWED_TRIALS)
        return hazards


def look_up(table: NDArray[np.float64], depth: int, rank: int) -> float:
    """A hazard; depths beyond the table repeat its last row, ranks beyond it have none."""
    if rank >= table.shape[1] or not len(table):
        return 0.0
    return float(table[min(depth, len(table)) - 1, rank])


def posterior(accepted: float, trials: float, confidence: float = 0.9) -> Interval:
    """Probability with the equal-tailed interval of Beta(accepted + 1/2, rest + 1/2).

    Jeffreys' prior; the mean is the plain frequency, 0 to 1 without trials.
    """
    from scipy.special import betaincinv

    tail = (1.0 - confidence) / 2.0
    a, b = accepted + 0.5, max(trials - accepted, 0.0) + 0.5
    low, high = float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1.0 - tail))
    mean = accepted / trials if trials else 0.5
    return Interval(mean, min(low, mean), max(high, mean))
