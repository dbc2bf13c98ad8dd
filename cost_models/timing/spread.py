"""How far a measured time may be from what the same call takes at another moment.

Two errors are told apart, both as half widths of 90 % intervals:

* a row's own: its centre is known from few passes over the grid, each at another time;
* drift: the whole machine is some per cent faster or slower at another moment, by clocks, caches
  and neighbours; it falls on all rows alike and no number of runs in one go shows it.

They are independent, so the interval of a row is their root of the sum of squares about its centre:
90 % bounds for the mean time per call over a run of many calls at some other moment.

Neighbours come in bursts that double a few measurements and leave the others alone. Centres are
therefore medians, and scales are median absolute deviations, with the factors that make them
unbiased for few normal numbers (Croux and Rousseeuw 1992, "Time-efficient algorithms for two highly
robust estimators of scale", section 4) and Student's quantile in place of the normal one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot, sqrt

import numpy as np
from numpy.typing import ArrayLike

UNKNOWN_DRIFT = 0.2
"""Taken where fewer than `LEAST_MOMENTS` moments were seen: shared machines drift so much."""
LEAST_MOMENTS = 3
_NORMAL = 1.6449
"""Half width of a 90 % interval in standard deviations."""
_QUARTILES = 1.3490
"""Distance of the quartiles of a normal law in standard deviations."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, sqrt(pi / 2)."""
_DEVIATION = 1.4826
"""Standard deviation of a normal law over its median absolute deviation."""
_FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
"""Croux and Rousseeuw's factors by the count of numbers; beyond, n / (n - 0.8)."""


def own_half_width(passes: Sequence[float], quartiles: tuple[float, float], runs: int) -> float:
    """Half width of the 90 % interval of a row's centre, seconds.

    Args:
        passes: centre of each pass, seconds. From two on, the interval of their median,
            t(0.95, P - 1) sqrt(pi / 2) s / sqrt(P); for fewer, that of the median of `runs` runs.
        quartiles: of single runs, seconds.
        runs: in all.
    """
    if len(passes) > 1:
        count = len(passes)
        return _student(count - 1) * _MEDIAN * scale(passes) / sqrt(count)
    return _NORMAL * _MEDIAN * (quartiles[1] - quartiles[0]) / _QUARTILES / sqrt(runs)


def drift_half_width(moments: Sequence[Mapping[str, float]]) -> float:
    """Relative half width of the 90 % interval of the machine's speed at a further moment.

    Args:
        moments: seconds of the same few anchors by name, measured again and again. At each moment
            the machine's slowness is the mean over anchors of time over median time; a further
            moment lies within t(0.95, M - 1) s sqrt(1 + pi / 2 / M) of their median.
    """
    names = set.intersection(*map(set, moments)) if moments else set()
    if len(moments) < LEAST_MOMENTS or not names:
        return UNKNOWN_DRIFT
    times = np.array([[moment[name] for name in sorted(names)] for moment in moments])
    slowness = (times / np.median(times, axis=0)).mean(axis=1)
    count = len(moments)
    return _student(count - 1) * scale(slowness) * sqrt(1.0 + _MEDIAN**2 / count)


def scale(numbers: ArrayLike) -> float:
    """Standard deviation by the median absolute deviation of at least two numbers."""
    values = np.asarray(numbers, dtype=np.float64)
    count = len(values)
    factor = _FEW.get(count, count / (count - 0.8))
    return factor * _DEVIATION * float(np.median(np.abs(values - np.median(values))))


def bounds(seconds: float, own: float, drift: float) -> tuple[float, float]:
    """90 % bounds of a time, seconds: as many times shorter as longer.

    Args:
        seconds: the centre.
        own: half width of its own interval, seconds.
        drift: relative half width of the machine's.
    """
    if seconds <= 0.0:
        return 0.0, own
    factor = 1.0 + hypot(own / seconds, drift)
    return seconds / factor, seconds * factor


def _student(degrees: int) -> float:
    """The 0.95 quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.95))
