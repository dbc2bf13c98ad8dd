"""Evidence `mixture`: acceptance varies between contexts, by a Beta shared along a round's path.

In a context of quality x the first choice is accepted with probability x and the choice of rank
r >= 1 with (1 - x) w_r: the quality moves the first choice, and the others share what it leaves.
x ~ Beta(a, b) is drawn once a round, so that a node with m first choices and n others on its path,
m + n = d, is accepted with probability

    E[x^m (1 - x)^n] prod(w) rho^(d (d - 1) / 2) = B(a + m, b + n) / B(a, b) prod(w) rho^(...)

(moments of the Beta distribution). On a chain (n = 0, rho = 1) this is the formula E = integral of
(1 - x^(g + 1)) / (1 - x) dBeta(x) = 1 + sum over i <= g of B(a + i, b) / B(a, b), whose hazards
(a + d - 1) / (a + b + d - 1) rise with depth: who came far is in an easy context. At depth 1 the
hazards are a / (a + b) and b w_r / (a + b), any positional vector of Sequoia (arXiv 2402.12374,
section 3.1); as a + b grows the mixture becomes that vector, and with one rank the scalar alpha of
Leviathan et al. 2022 (arXiv 2211.17192). rho <= 1 is a draft that weakens by this factor a level,
all ranks alike: it says what a Beta alone cannot, that hazards fall with depth.

The split (1 - x) w_r is this project's own; the mixture over chains is fitted to published rows of
Sequoia (tables 5-7) in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.cost_models.acceptance.model import Floats, NodeModel, Shape, around
from specplan.cost_models.intervals import Interval


@dataclass(frozen=True)
class BetaMixture(Evidence):
    """The mixture, known up to some equally likely members.

    Attributes:
        members: (a, b, rho) of each; one member is exact.
        others: w_r for ranks 1, 2, ...; share of the contexts' misses that each one takes.
        trials: rounds behind it; None when nobody said.
    """

    members: tuple[tuple[float, float, float], ...]
    others: tuple[float, ...] = ()
    trials: float | None = None
    kind: ClassVar[str] = "mixture"
    ranked: ClassVar[bool] = True

    @cached_property
    def model(self) -> MixtureModel:
        """The mean over members."""
        return MixtureModel(self)

    @property
    def knows_second_choices(self) -> bool:
        """See `Evidence.knows_second_choices`."""
        return bool(self.others)

    @classmethod
    def of(
        cls, a: float, b: float, *, others: Sequence[float] = (), decay: float = 1.0
    ) -> BetaMixture:
        """The mixture of one Beta(a, b), which is exact."""
        return cls(((a, b, decay),), tuple(others))

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        if not self.members:
            return "a mixture needs a member"
        for a, b, decay in self.members:
            if not (0 < a < np.inf and 0 < b < np.inf and 0 < decay <= 1):
                return f"({a!r}, {b!r}, {decay!r}) is no member (a > 0, b > 0, 0 < decay <= 1)"
        if any(not 0 <= share <= 1 for share in self.others) or sum(self.others) > 1 + 1e-9:
            return "the shares of other ranks must be in [0, 1] and sum to at most 1"
        return "trials must be positive" if self.trials is not None and self.trials <= 0 else None


class MixtureModel(NodeModel):
    """Prices trees by a `BetaMixture`; every answer is the mean over its members."""

    def __init__(self, mixture: BetaMixture) -> None:
        self.mixture = mixture
        self._reached: tuple[Shape, Floats] | None = None

    def hazard(self, depth: int, rank: int) -> float:
        """A hazard below first choices: other paths have other ones, and are priced by `reach`."""
        return float(self._hazards(depth, rank, pooled=True)[0])

    def hazard_counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) as far as rounds were counted: trials fall with the depth."""
        trials = (self.mixture.trials or 0.0) * self._first_choices(depth - 1)
        return self.hazard(depth, rank) * trials, trials

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard over the members."""
        mean = self.hazard(depth, rank)
        if len(self.mixture.members) == 1:
            return Interval.exact(mean)
        return around(mean, self._hazards(depth, rank, pooled=False), confidence)

    def reach(self, shape: Shape) -> Floats:
        """P(each node is accepted), [nodes]."""
        reached: Floats = self._members(shape).mean(axis=1)
        return reached

    def reach_draws(self, shape: Shape) -> Floats | None:
        """The same by member, [nodes, members]."""
        return None if len(self.mixture.members) == 1 else self._members(shape)

    def _members(self, shape: Shape) -> Floats:
        if self._reached is None or self._reached[0] is not shape:
            self._reached = shape, self._moments(shape)
        return self._reached[1]

    def _moments(self, shape: Shape) -> Floats:
        first = (shape.ranks == 0).astype(np.int64)
        weights = self._others[np.minimum(shape.ranks, len(self._others) - 1)]
        for level in shape.levels[1:]:
            above = shape.parents[level]
            first[level] += first[above]
            weights[level] *= weights[above]
        deepest = len(shape.levels)
        a, b, log_decay = self._arrays
        others = shape.depths - first
        logs = (
            _log_rising(a, deepest)[first]
            + _log_rising(b, deepest)[others]
            - _log_rising(a + b, deepest)[shape.depths]
            + (shape.depths * (shape.depths - 1) / 2.0)[:, None] * log_decay
        )
        moments: Floats = weights[:, None] * np.exp(logs)
        return moments

    def _hazards(self, depth: int, rank: int, *, pooled: bool) -> Floats:
        """P(child of this rank | all first choices above were accepted), over members or each."""
        chain = Shape.of((-1, *range(depth - 1)), (*(0,) * (depth - 1), rank))
        moments = self._moments(chain)
        above = moments[-2] if depth > 1 else np.ones(moments.shape[1])
        if pooled:
            return np.array([moments[-1].mean() / max(above.mean(), 1e-300)])
        hazards: Floats = moments[-1] / np.maximum(above, 1e-300)
        return hazards

    def _first_choices(self, depth: int) -> float:
        """P(a chain's first `depth` tokens are all accepted)."""
        if not depth:
            return 1.0
        return float(self._moments(Shape.of(range(-1, depth - 1), (0,) * depth))[-1].mean())

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        a, b, decay = np.array(self.mixture.members, dtype=np.float64).T
        return a, b, np.log(decay)

    @cached_property
    def _others(self) -> Floats:
        """Weight by rank: 1 for the first choice, w_r, and 0 beyond."""
        return np.array([1.0, *self.mixture.others, 0.0])


def _log_rising(start: Floats, deepest: int) -> Floats:
    """Logarithm of the rising factorial s (s + 1) ... (s + n - 1), [n = 0 ... deepest, members]."""
    steps = np.log(start[None, :] + np.arange(deepest)[:, None])
    logs: Floats = np.concatenate([np.zeros((1, len(start))), np.cumsum(steps, axis=0)])
    return logs


EVIDENCE = BetaMixture
