"""What a plan serves of a load with its interval, ready to be told; every number is modelled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from specplan.cost_models.estimate import Estimate
from specplan.cost_models.intervals import Interval
from specplan.planner.explain.numbers import interval_data
from specplan.planner.search.objectives import Load
from specplan.planner.serving.capacity import AtLength, NothingFits, Served, serve, times_of

MODELLED = "modelled: a server that batches continuously, by mean values"


@dataclass(frozen=True)
class AtLoad:
    """The law at the estimate's own values and at both ends of its 90 % interval.

    Attributes:
        mean: by the medians of all times.
        fast: by their low ends.
        slow: by their high ends.
    """

    mean: Served
    fast: Served
    slow: Served

    @property
    def request_rate(self) -> float:
        """The load, requests that arrive per second."""
        return self.mean.load.request_rate

    @property
    def whole(self) -> bool:
        """Whether the whole load is served within the limits."""
        return bool(self.mean.whole)

    @property
    def goodput(self) -> Interval:
        """Requests per second served within the limits."""
        return self._rate(lambda served: served.goodput)

    @property
    def most(self) -> Interval:
        """Most requests per second that are borne within the limits."""
        return self._rate(lambda served: served.most)

    def _rate(self, of: Callable[[Served], Any]) -> Interval:
        mean, slow, fast = (float(of(served)) for served in (self.mean, self.slow, self.fast))
        return Interval(mean, min(mean, slow), max(mean, fast))

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; None for what lies beyond the batch sizes that are known."""
        ends = list(zip(self.mean.lengths, self.fast.lengths, self.slow.lengths, strict=True))
        return {
            "basis": MODELLED,
            "request_rate": self.request_rate,
            "whole": self.whole,
            "goodput": interval_data(self.goodput),
            "most": interval_data(self.most),
            "by_prompt": [self._at(*of_length) for of_length in ends],
        }

    def _at(self, *ends: AtLength | NothingFits) -> dict[str, Any]:
        """At one length of prompts; of the mean, the fast and the slow end."""
        first = ends[0]
        number = float(first.in_flight)
        needed = first.batches[first.batches >= number]
        return {
            "prompt_tokens": first.prompt_tokens,
            "whole": bool(first.whole),
            "bound": first.bound,
            "largest_batch": int(first.batches[-1]) if len(first.batches) else None,
            "batch": int(needed[0]) if len(needed) else None,
            "in_flight": _known([at.in_flight for at in ends]),
            "seconds": _known([at.times.request for at in ends]),
            "ttft": _known([at.times.ttft for at in ends]),
            "seconds_per_token": _known([at.times.tpot for at in ends]),
        }


def at_load(load: Load, estimate: Estimate) -> AtLoad:
    """What a plan with this estimate serves of a load."""
    mean, fast, slow = (
        serve(load, estimate, times_of(estimate, end)) for end in ("median", "low", "high")
    )
    return AtLoad(mean, fast, slow)


def _known(ends: list[Any]) -> dict[str, float | None] | None:
    """Mean, low and high; the high one is None where the slow end does not bear the load."""
    mean, low, high = (float(np.asarray(end)) for end in ends)
    if math.isnan(mean):
        return None
    return {
        "mean": mean,
        "low": mean if math.isnan(low) else min(mean, low),
        "high": None if math.isnan(high) else max(mean, high),
    }
