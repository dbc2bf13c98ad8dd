"""How far a measured time may be from what the same call takes at another moment.

Two errors are distinguished, both as half widths of 90 % intervals:

* drift: the whole machine is some per cent faster or slower at another moment, by clocks, caches
  and neighbours; it falls on all rows alike and no number of runs in one go shows it. Each pass
  over a cell of the grid, some seconds, is another moment: what its rows have in common against
  the other passes is the machine's slowness then. A run of requests lasts longer, minutes as a
  pass over the whole grid does: it is the mean slowness of these that scatters about it;
* a row's own: its centre is known from few passes, each of few runs.

They are independent, so the interval of a row is their root of the sum of squares about its centre:
90 % bounds for the mean time per call over a run of some minutes at some other moment.

Neighbours come in bursts that double a few measurements and leave the others alone. Centres are
therefore medians, and scales are median absolute deviations, with the factors that make them
unbiased for few normal numbers (Croux and Rousseeuw 1992, "Time-efficient algorithms for two highly
robust estimators of scale", section 4) and Student's quantile in place of the normal one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specplan.cost_models.intervals import HALF_WIDTH_90

UNKNOWN_DRIFT = 0.2
"""Taken where fewer than `LEAST_MOMENTS` moments were seen: shared machines drift so much."""
LEAST_MOMENTS = 3
_QUARTILES = 1.3490
"""Distance of the quartiles of a normal law in standard deviations."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, sqrt(pi / 2)."""
_DEVIATION = 1.4826
"""Standard deviation of a normal law over its median absolute deviation."""
_FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
"""Croux and Rousseeuw's factors by the count of numbers; beyond, n / (n - 0.8)."""


def own_half_width(
    seconds: float, passes: int, quartiles: tuple[float, float], runs: int, scatter: float
) -> float:
    """Half width of the 90 % interval of a row's centre, seconds.

    Args:
        seconds: the centre.
        passes: over the grid. From two on, the centre is the median of as many: its standard error
            is sqrt(pi / 2) scatter / sqrt(P); for fewer, it is that of the median of `runs` runs.
        quartiles: of single runs, seconds.
        runs: in all.
        scatter: see `pass_scatter`.
    """
    if passes > 1:
        return HALF_WIDTH_90 * _MEDIAN * scatter * seconds / sqrt(passes)
    return HALF_WIDTH_90 * _MEDIAN * (quartiles[1] - quartiles[0]) / _QUARTILES / sqrt(runs)


def pass_scatter(cells: Sequence[ArrayLike]) -> float:
    """Relative standard deviation of a row's time in one pass, that of the machine left out.

    Args:
        cells: of each cell of the grid, seconds [rows, passes]. What a pass's rows have in common
            is taken out; the scatter is the median over all rows, as each alone has few passes.
    """
    scatters = []
    for cell in cells:
        times = _relative(cell)
        scatters.append(scales(times / np.median(times, axis=0)))
    return float(np.median(np.concatenate(scatters))) if scatters else 0.0


def drift_half_width(cells: Sequence[ArrayLike]) -> float:
    """Relative half width of the 90 % interval of the machine's speed in a further run.

    Args:
        cells: of each cell of the grid, seconds [rows, passes], at least two passes, in the order
            of passes over the grid. In each pass over a cell the machine's slowness is the median
            over rows of time over the row's median; s is the root mean square of its scales in all
            C cells. Two errors are independent: the centre of P passes lies within
            t(0.95, C (P - 1)) s sqrt(pi / 2 / P) of a cell's own; and the mean of a pass over the
            grid within t(0.95, P - 1) of its standard deviation, or within
            t(0.95, C (P - 1)) s / sqrt(C) where that is more, as where moments are independent.
    """
    slowness = [np.median(_relative(cell), axis=0) for cell in cells]
    degrees = sum(len(passes) - 1 for passes in slowness)
    if degrees < LEAST_MOMENTS - 1:
        return UNKNOWN_DRIFT
    fewest = min(map(len, slowness))
    wide = student(degrees) * sqrt(float(np.mean([scale(passes) ** 2 for passes in slowness])))
    whole = np.mean([passes[:fewest] for passes in slowness], axis=0)
    independent = student(fewest - 1) * float(np.std(whole, ddof=1))
    return hypot(max(independent, wide / sqrt(len(slowness))), wide * _MEDIAN / sqrt(fewest))


def _relative(cell: ArrayLike) -> NDArray[np.float64]:
    """Times over the median of their row, [rows, passes]."""
    times = np.asarray(cell, dtype=np.float64)
    relative: NDArray[np.float64] = times / np.median(times, axis=1, keepdims=True)
    return relative


def scale(numbers: ArrayLike) -> float:
    """Standard deviation by the median absolute deviation of at least two numbers."""
    return float(scales(np.asarray(numbers, dtype=np.float64)))


def scales(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The `scale` of each row, [...] of [..., numbers]."""
    count = rows.shape[-1]
    factor = _FEW.get(count, count / (count - 0.8)) * _DEVIATION
    away = np.abs(rows - np.median(rows, axis=-1, keepdims=True))
    deviations: NDArray[np.float64] = factor * np.median(away, axis=-1)
    return deviations


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


def student(degrees: int) -> float:
    """The 0.95 quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.95))
