"""Numbers in words: three digits, a unit, the 90 % interval in brackets, and only a few of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypeVar

from specplan.cost_models.intervals import Interval, Seconds
from specplan.cost_models.rounds.pricing import PricedOp


def interval_data(interval: Interval) -> dict[str, float]:
    """The mean with both bounds."""
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def seconds_data(seconds: Seconds) -> dict[str, float]:
    """The median, called mean as in every other interval, with both bounds."""
    return {"mean": seconds.median, "low": seconds.low, "high": seconds.high}


def parts_data(parts: Iterable[PricedOp]) -> list[dict[str, Any]]:
    """Where the time of a round goes."""
    return [
        {
            "op": part.op,
            "model": part.model,
            "width": part.width,
            "times": part.times,
            "seconds": seconds_data(part.seconds),
        }
        for part in parts
    ]


_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


_AGES = ((365, "years"), (30, "months"), (1, "days"))


MOST_LOADS = 4
"""Loads that are listed one by one."""

Entry = TypeVar("Entry")


def few(entries: Sequence[Entry], most: int = MOST_LOADS) -> Sequence[Entry]:
    """All of them, or the first and the last where there are more than `most`."""
    return entries if len(entries) <= most else [entries[0], entries[-1]]


def about(interval: Mapping[str, float], words: Callable[[float], str]) -> str:
    """An estimate with the ends of its interval."""
    mean, low, high = (words(interval[end]) for end in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def seconds_words(seconds: float) -> str:
    """A time with its unit."""
    if seconds <= 0.0:
        return "0 s"
    for scale, unit in _SECONDS:
        if seconds >= scale:
            return f"{short(seconds / scale)} {unit}"
    return f"{seconds / 1e-9:.2g} ns"


def bytes_words(count: float) -> str:
    """An amount of memory with its unit."""
    for scale, unit in _BYTES:
        if count >= scale:
            return f"{short(count / scale)} {unit}"
    return f"{count:.0f} B"


def age_words(day: str, today: date | None) -> str:
    """How long ago a day was, and the day; the day alone where nobody says which day it is.

    Args:
        day: ISO 8601; anything else comes back unchanged.
        today: by the reader's clock.
    """
    try:
        age = None if today is None else (today - date.fromisoformat(day)).days
    except ValueError:
        return day
    if age is None or age < 0:
        return f"on {day}"
    if age < 2:
        return f"{'yesterday' if age else 'today'}, {day}"
    count, unit = next((age // days, unit) for days, unit in _AGES if age >= 2 * days)
    return f"{count} {unit} ago, {day}"


def counted(count: int, noun: str) -> str:
    """A number of things: `1 request`, `8 requests`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def percent(share: float) -> str:
    """A share in percent."""
    return f"{share:.0%}"


def short(number: float) -> str:
    """Three digits, no exponent."""
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.2f}" if number < 10 else f"{number:.1f}"
