"""Evidence `hazards`: a table by depth and rank: scalar alpha, positional, depth dependent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.cost_models.acceptance.hazards import look_up, posterior
from specplan.cost_models.acceptance.model import Floats, NodeModel, Shape
from specplan.cost_models.intervals import Interval

EXTRAPOLATED_TRIALS = 10.0
"""Weight, in trials, of the last measured depth as evidence about the depths below it."""
_DRAWS = 400


@dataclass(frozen=True)
class Hazards(Evidence):
    """What was counted or published.

    Attributes:
        rows: P(child accepted | parent accepted) by depth (first row depth 1) and rank; the last
            row holds for all deeper ones.
        trials: positions behind the rows, one number for all or one for each; None when nobody
            said.
        measured_depth: the deepest row that was measured, where deeper ones are no more than
            extrapolated; None where the last row was meant for all of them.
    """

    rows: tuple[tuple[float, ...], ...]
    trials: float | tuple[float, ...] | None = None
    measured_depth: int | None = None
    kind: ClassVar[str] = "hazards"
    ranked: ClassVar[bool] = True

    @cached_property
    def model(self) -> HazardModel:
        """Multiplies hazards along paths."""
        return HazardModel(self.rows, self.trials, self.measured_depth)

    @property
    def knows_second_choices(self) -> bool:
        """See `Evidence.knows_second_choices`."""
        return any(len(row) > 1 for row in self.rows)

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        if not any(len(row) for row in self.rows):
            return "holds no measurement"
        for value in (value for row in self.rows for value in row):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                return f"{value!r} is out of range"
        if len({len(row) for row in self.rows}) != 1 or any(
            sum(row) > 1 + 1e-9 for row in self.rows
        ):
            return "rows of hazards must be of one length and sum to at most 1"
        each = self.trials if isinstance(self.trials, tuple) else (self.trials,)
        if self.trials is not None and not all(value is not None and value > 0 for value in each):
            return "trials must be positive"
        if isinstance(self.trials, tuple) and len(self.trials) != len(self.rows):
            return f"{len(self.trials)} trials for {len(self.rows)} rows of hazards"
        if self.measured_depth is not None and self.measured_depth < 1:
            return "measured_depth must be at least 1"
        return None


class HazardModel(NodeModel):
    """The product of hazards on a node's path (Sequoia, arXiv 2402.12374, section 3.1, by depth).

    Args:
        hazards: P(child accepted | parent accepted), rows by depth from 1, columns by rank; the
            last row holds for all deeper ones.
        trials: positions behind each row, or behind all alike; None when nobody said: then the
            table is taken as exact.
        measured_depth: depths below it are extrapolated, with no more than
            `EXTRAPOLATED_TRIALS` behind them; None: the last row was meant for all of them.
    """

    def __init__(
        self,
        hazards: Sequence[Sequence[float]],
        trials: float | Sequence[float] | None = None,
        measured_depth: int | None = None,
    ) -> None:
        table = np.array(hazards, dtype=np.float64)
        self.known = trials is not None
        behind = np.broadcast_to(np.asarray(trials or 0.0, dtype=np.float64), len(table)).copy()
        if measured_depth is not None:
            deep = min(behind[-1], EXTRAPOLATED_TRIALS)
            keep = min(measured_depth, len(table))
            rows = [*range(keep), *[len(table) - 1] * (measured_depth - keep + 1)]
            table = table[rows]
            behind = np.append(behind[rows[:-1]], deep)
        self.table: Floats = table
        self.trials: Floats = behind
        self._counted = behind if measured_depth is None else np.append(behind[:-1], 0.0)

    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was)."""
        return look_up(self.table, depth, rank)

    def hazard_counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) below the depths that were measured."""
        trials = float(self._counted[min(depth, len(self.table)) - 1])
        return self.hazard(depth, rank) * trials, trials

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its Beta posterior interval."""
        if not self.known:
            return Interval.exact(self.hazard(depth, rank))
        mean, weight = self.hazard(depth, rank), float(self.trials[min(depth, len(self.table)) - 1])
        return posterior(mean * weight, weight, confidence)

    def reach(self, shape: Shape) -> Floats:
        """P(each node is accepted), [nodes]."""
        return _products(shape, self.table[..., None])[:, 0]

    def reach_draws(self, shape: Shape) -> Floats | None:
        """The same by tables drawn from the posterior, [nodes, draws]."""
        return _products(shape, self._draws) if self.known else None

    @cached_property
    def _draws(self) -> Floats:
        """Tables from the Dirichlet posterior of each depth, [depth, rank, draws].

        The parts of a depth are its ranks and "none"; Jeffreys' prior on the first rank, "none"
        and all others that were seen.
        """
        rest = np.maximum(1.0 - self.table.sum(axis=1, keepdims=True), 0.0)
        shape = np.concatenate([self.table, rest], axis=1) * self.trials[:, None]
        possible = shape > 0.0
        possible[:, [0, -1]] = True
        weights = np.where(possible, shape + 0.5, 0.0)
        gammas = np.random.default_rng(0).gamma(weights, size=(_DRAWS, *shape.shape))
        draws: Floats = gammas[..., :-1] / gammas.sum(axis=-1, keepdims=True)
        return np.ascontiguousarray(np.moveaxis(draws, 0, -1))


def _products(shape: Shape, table: Floats) -> Floats:
    """Products of hazards on the paths, [nodes, draws]; `table` is [depth, rank, draws]."""
    depth = np.minimum(shape.depths, len(table)) - 1
    known = shape.ranks < table.shape[1]
    hazards: Floats = table[depth, np.where(known, shape.ranks, 0)]
    hazards[~known] = 0.0
    for level in shape.levels[1:]:
        hazards[level] *= hazards[shape.parents[level]]
    return hazards


EVIDENCE = Hazards
