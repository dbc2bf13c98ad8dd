"""When training has reached what pays: the gain of the next interval against its price.

The gain is that of the planned speed, by the curves of acceptance (`curves`). The price of an
interval is its part of what the rest of the budget must gain: training stops as soon as the rest,
if all of it gained as much as the next interval, would not speed decoding up by `worth`. Curves
flatten, so that the rest gains less than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specplan.planner.training.curves import LEAST_POINTS, Evaluation, curves_of, rates_at

Speed = Callable[[Sequence[Sequence[float]]], float]
"""Planned speed over no speculation from hazards by position and rank."""
WORTH = 0.01
"""Of the planned speed, what the rest of a budget must gain to be run."""


@dataclass(frozen=True)
class StopRule:
    """What training costs.

    Attributes:
        budget: steps that may be run.
        interval: steps between evaluations.
        worth: see `WORTH`.
    """

    budget: int
    interval: int
    worth: float = WORTH

    def price(self, steps: int) -> float:
        """Relative gain of the planned speed that the interval after so many steps must bring."""
        return self.worth * self.interval / max(self.budget - steps, self.interval)

    def go_on(self, steps: int) -> Verdict:
        """Where there is nothing to judge by yet."""
        return Verdict(steps, None, None, self.price(steps), False)


@dataclass(frozen=True)
class Verdict:
    """What the rule says after an evaluation.

    Attributes:
        steps: that were run.
        speed: planned speed over no speculation, by the curves; None with too few points.
        gain: relative gain that the next interval is expected to bring; likewise.
        price: that it must bring.
        stop: it does not.
    """

    steps: int
    speed: float | None
    gain: float | None
    price: float
    stop: bool

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def verdict(evaluations: Sequence[Evaluation], rule: StopRule, speed: Speed) -> Verdict:
    """Whether to run the next interval.

    Args:
        evaluations: so far, by rising steps.
        rule: what it costs.
        speed: prices acceptance.
    """
    last = evaluations[-1]
    if len(evaluations) < LEAST_POINTS:
        return rule.go_on(last.steps)
    curves = curves_of(evaluations)
    here, ahead = (
        speed(last.hazards(np.asarray(rates_at(curves, steps).mean(0))))
        for steps in (last.steps, last.steps + rule.interval)
    )
    gain, price = ahead / here - 1.0, rule.price(last.steps)
    return Verdict(last.steps, here, gain, price, gain < price)
