"""Numbers with their interval: seconds that sum, and dimensionless means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with bounds, `low <= mean <= high`.

    Attributes:
        mean: the point estimate.
        low: lower bound of the interval.
        high: upper bound of the interval.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """An interval without width."""
        return cls(value, value, value)

    def __mul__(self, factor: float) -> Interval:
        """Scale by a non-negative number."""
        return Interval(self.mean * factor, self.low * factor, self.high * factor)

    __rmul__ = __mul__


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time with its spread.

    Sums add the bounds too, as if all parts were slow together: the interval of a sum is
    never too narrow because parts were wrongly taken to be independent.

    Attributes:
        median: seconds.
        low: lower bound, seconds (lower quartile where it was measured).
        high: upper bound, seconds (upper quartile where it was measured).
        extrapolated: some part lies outside of what was measured.
    """

    median: float
    low: float
    high: float
    extrapolated: bool = False

    @classmethod
    def exact(cls, value: float) -> Seconds:
        """A time without spread."""
        return cls(value, value, value)

    @classmethod
    def relative(cls, median: float, error: float) -> Seconds:
        """A time with a relative half width, e.g. 0.15 for +-15 %; never below zero."""
        return cls(median, median * max(0.0, 1.0 - error), median * (1.0 + error))

    def __add__(self, other: Seconds) -> Seconds:
        """Time of one after the other."""
        return Seconds(
            self.median + other.median,
            self.low + other.low,
            self.high + other.high,
            self.extrapolated or other.extrapolated,
        )

    def __mul__(self, factor: float) -> Seconds:
        """Time of `factor` (>= 0) repetitions."""
        return Seconds(
            self.median * factor, self.low * factor, self.high * factor, self.extrapolated
        )

    __rmul__ = __mul__

    def times(self, count: Interval) -> Seconds:
        """Time of an uncertain number of repetitions."""
        return Seconds(
            self.median * count.mean,
            self.low * count.low,
            self.high * count.high,
            self.extrapolated,
        )


NO_TIME = Seconds(0.0, 0.0, 0.0)


def total(parts: Iterable[Seconds]) -> Seconds:
    """Sum of times, zero for none."""
    result = NO_TIME
    for part in parts:
        result = result + part
    return result
