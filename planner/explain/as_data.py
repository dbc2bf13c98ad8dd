"""Numbers with their 90 % interval, ready for JSON."""

from __future__ import annotations

from specplan.cost_models.intervals import Interval, Seconds


def interval_data(interval: Interval) -> dict[str, float]:
    """The mean with both bounds."""
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def seconds_data(seconds: Seconds) -> dict[str, float]:
    """The median, called mean as in every other interval, with both bounds."""
    return {"mean": seconds.median, "low": seconds.low, "high": seconds.high}
