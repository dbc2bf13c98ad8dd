"""Quantiles of what requests meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specplan.cost_models.serving.server import Floats


@dataclass(frozen=True)
class Quantiles:
    """A time of requests, in seconds.

    Attributes:
        mean: over requests.
        p50: the median.
        p90: nine of ten requests take no longer.
        p99: 99 of 100 take no longer.
    """

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float] | Floats) -> Quantiles:
        """Those of some requests, linear between neighbours."""
        values = np.asarray(seconds, dtype=np.float64)
        return cls(float(values.mean()), *map(float, np.quantile(values, (0.5, 0.9, 0.99))))


@dataclass(frozen=True)
class LoadTimes:
    """What the requests of a load meet.

    Attributes:
        ttft: from arrival to the first token.
        tpot: per further token.
        request: from arrival to the last token.
        throughput: requests per second.
    """

    ttft: Quantiles
    tpot: Quantiles
    request: Quantiles
    throughput: float
