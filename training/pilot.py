"""Pilots: a few per cent of a training for each candidate, and what the whole one would give.

Small runs rank candidates as large ones do (vllm-project/speculators, RFC 1015). Each candidate's
acceptance by position is extrapolated by its curve to the whole budget; the planner prices it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specplan.cost_models.intervals import Interval
from specplan.planner.training.curves import Evaluation, curves_of, rates_at
from specplan.planner.training.stopping import Speed

SHARE = 0.04
"""Of the budget, what a pilot takes."""
POINTS = 5
"""Evaluations of a pilot."""
SPEED_DRAWS = 24
"""Draws of the curves that are priced."""


@dataclass(frozen=True)
class Pilot:
    """One candidate after its pilot.

    Attributes:
        family: its name.
        folder: of its training, which goes on from there.
        steps: that were run.
        budget: of the whole training.
        rates: acceptance by position after the whole training, given those before.
        speed: planned speed over no speculation after the whole training.
        seconds: that the whole training takes, as fast as the pilot.
    """

    family: str
    folder: Path
    steps: int
    budget: int
    rates: tuple[Interval, ...]
    speed: Interval
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "folder": str(self.folder)}


def pilot_points(budget: int) -> list[int]:
    """Steps after which a pilot is evaluated: evenly over its part of the budget."""
    steps = max(round(SHARE * budget), POINTS)
    return sorted({max(1, round(steps * (place + 1) / POINTS)) for place in range(POINTS)})


def piloted(
    family: str, folder: Path, evaluations: Sequence[Evaluation], budget: int, speed: Speed,
    seconds_per_step: float,
) -> Pilot:  # fmt: skip
    """What the evaluations of a pilot say of the whole training."""
    curves = curves_of(evaluations)
    last = evaluations[-1]
    draws = rates_at(curves, budget)
    chosen = draws[np.linspace(0, len(draws) - 1, SPEED_DRAWS).astype(int)]
    speeds = [speed(last.hazards(row)) for row in chosen]
    low, high = np.quantile(speeds, (0.05, 0.95))
    middle = speed(last.hazards(draws.mean(0)))
    return Pilot(
        family, folder, last.steps, budget, tuple(curve.interval(budget) for curve in curves),
        Interval(middle, min(float(low), middle), max(float(high), middle)),
        seconds_per_step * budget,
    )  # fmt: skip


def chosen(pilots: Sequence[Pilot]) -> Pilot:
    """The one with the fastest plan after its whole training."""
    return max(pilots, key=lambda one: one.speed.mean)
