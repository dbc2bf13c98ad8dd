"""Numbers with their interval: seconds that sum, and dimensionless means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specplan.cost_models.cost import Quantity, maximum

HALF_WIDTH_90 = 1.6449
"""Half width of a 90 % interval in standard deviations: the normal law's 0.95 quantile."""


@dataclass(frozen=True, slots=True, repr=False)
class Interval:
    """A mean with its 90 % interval, `low <= mean <= high`; numbers, or arrays of one shape.

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

    @property
    def inverse(self) -> Interval:
        """Of the reciprocal; the interval is positive."""
        return Interval(1.0 / self.mean, 1.0 / self.high, 1.0 / self.low)

    def predictive(self, samples: int, drawn: int) -> Interval:
        """Of the mean of `drawn` further draws, when this is of a mean over `samples` draws.

        The variance of the first mean goes with 1 / samples, that of the second with 1 / drawn.
        The low end stays positive.
        """
        wider = (1.0 + samples / drawn) ** 0.5
        low = maximum(self.mean - (self.mean - self.low) * wider, 0.01 * self.mean)
        return Interval(self.mean, low, self.mean + (self.high - self.mean) * wider)

    def __mul__(self, factor: float) -> Interval:
        """Scale by a non-negative number."""
        return Interval(self.mean * factor, self.low * factor, self.high * factor)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        """`1.86 (1.61 to 2)`: the mean and the interval."""
        if getattr(self.mean, "ndim", 0):
            return f"Interval of {len(self.mean)} cells"  # type: ignore[arg-type]
        return self.words(".4g")

    def words(self, form: str = ".3g") -> str:
        """`mean (low to high)`, each number in the given format."""
        mean, low, high = (format(x, form) for x in (self.mean, self.low, self.high))
        return f"{mean} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time with its 90 % interval; numbers, or arrays of one shape.

    Sums add the bounds too, as if all parts were slow together: times of one device share most
    of their errors, and the interval of a sum is never too narrow because parts were wrongly
    taken to be independent.

    Attributes:
        median: seconds.
        low: lower bound, seconds.
        high: upper bound, seconds.
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
            self.extrapolated | other.extrapolated,
        )

    def __mul__(self, factor: float) -> Seconds:
        """Time of `factor` (>= 0) repetitions."""
        return Seconds(
            self.median * factor, self.low * factor, self.high * factor, self.extrapolated
        )

    __rmul__ = __mul__

    def error_beside(self, shared_error: Quantity) -> Quantity:
        """Relative half width that is left after an error shared by all times is removed.

        The two add in quadrature; never below zero.
        """
        return beside(self.high / maximum(self.median, 1e-300) - 1.0, shared_error)

    def times(self, count: Interval) -> Seconds:
        """Time of an uncertain number of repetitions.

        How long one takes and how many there are err independently: to first order the half
        widths of the product are the root of the sum of squares.
        """
        mean = self.median * count.mean
        down = _hypotenuse(
            (self.median - self.low) * count.mean, self.median * (count.mean - count.low)
        )
        up = _hypotenuse(
            (self.high - self.median) * count.mean, self.median * (count.high - count.mean)
        )
        return Seconds(mean, maximum(mean - down, 0.0), mean + up, self.extrapolated)


def beside(error: Quantity, shared: Quantity) -> Quantity:
    """What is left of an error without a part of it, in quadrature; at least zero."""
    rest: Quantity = maximum(error**2 - shared**2, 0.0) ** 0.5
    return rest


def _hypotenuse(a: Quantity, b: Quantity) -> Quantity:
    return (a * a + b * b) ** 0.5


NO_TIME = Seconds(0.0, 0.0, 0.0)


def total(parts: Iterable[Seconds]) -> Seconds:
    """Sum of times, zero for none."""
    result = NO_TIME
    for part in parts:
        result = result + part
    return result


def side_by_side(lanes: Iterable[Seconds], overlap: float) -> Seconds:
    """Time of lanes that start together: the longest, and of the others what it does not hide.

    Args:
        lanes: each on its own.
        overlap: part of the shorter lanes that the longest hides, from 0 (they share all that the
            device has, and take turns) to 1 (they do not slow each other).
    """
    times = list(lanes)
    longest = times[0]
    for lane in times[1:]:
        longest = Seconds(
            maximum(longest.median, lane.median),
            maximum(longest.low, lane.low),
            maximum(longest.high, lane.high),
            longest.extrapolated | lane.extrapolated,
        )
    return longest * overlap + total(times) * (1.0 - overlap)
