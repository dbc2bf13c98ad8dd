"""A server under load: requests in flight and requests served, from times at some batch sizes.

The law `loaded_server` where the time of a request is linear between batch sizes only. With `N`
requests in flight one takes `T(N)` seconds, and `N / T(N)` leave per second; where as many arrive,
`N = load T(N)` (Little 1961). Below the smallest batch size `T` is that of the smallest; beyond the
largest nothing is known, and nothing is said.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def requests_in_flight(batches: Floats, seconds: Floats, load: float) -> Floats:
    """The least number of requests in flight at which as many leave as arrive.

    It is stable: with fewer in flight more arrive than leave, and with a few more, more leave.

    Args:
        batches: batch sizes, rising, [batches].
        seconds: of a request at each of them, [..., batches].
        load: requests that arrive per second.

    Returns:
        [...]; nan where up to the largest batch size fewer leave than arrive.
    """
    excess = batches - load * np.asarray(seconds, dtype=np.float64)
    borne = excess >= 0.0
    right = borne.argmax(axis=-1)
    left = np.maximum(right - 1, 0)
    below, above = _at(excess, left), _at(excess, right)
    share = -below / np.where(right > 0, above - below, 1.0)
    inside = batches[left] + share * (batches[right] - batches[left])
    in_flight = np.where(right > 0, inside, load * _at(seconds, right))
    return np.where(borne.any(axis=-1), in_flight, np.nan)


def between(batches: Floats, values: Floats, in_flight: Floats) -> Floats:
    """Quantities at batch sizes, with a given number of requests in flight.

    Args:
        batches: batch sizes, rising, [batches].
        values: at each of them, [..., batches].
        in_flight: at most the largest batch size, or nan, [...].

    Returns:
        Linear between batch sizes, that of the smallest below it; nan where `in_flight` is, [...].
    """
    if len(batches) == 1:
        return np.where(np.isnan(in_flight), np.nan, values[..., 0])
    right = np.clip(np.searchsorted(batches, in_flight), 1, len(batches) - 1)
    left = right - 1
    share = (in_flight - batches[left]) / (batches[right] - batches[left])
    low, high = _at(values, left), _at(values, right)
    point: Floats = low + (high - low) * np.maximum(share, 0.0)
    return point


def most_served(batches: Floats, seconds: Floats, slack: Floats) -> Floats:
    """The most requests that leave per second, over all numbers in flight that keep the limits.

    Args:
        batches: batch sizes, rising, [batches].
        seconds: of a request at each of them, [..., batches].
        slack: each limit less what is limited, linear between batch sizes; a limit is kept
            where this is not negative. [limits, ..., batches]; there may be no limit.

    Returns:
        [...]; 0 where no number in flight keeps all limits.
    """
    idle = (slack[..., 0] >= 0.0).all(axis=0)
    most = np.where(idle, batches[0] / seconds[..., 0], 0.0)
    for left in range(len(batches) - 1):
        low, high = _within_limits(slack[..., left], slack[..., left + 1])
        for share in (low, high):  # N / T(N) has no maximum inside of a stretch where T is linear
            within = np.where(low <= high, share, 0.0)
            number = batches[left] + within * (batches[left + 1] - batches[left])
            time = seconds[..., left] + within * (seconds[..., left + 1] - seconds[..., left])
            most = np.maximum(most, np.where(low <= high, number / time, 0.0))
    return most


def _within_limits(left: Floats, right: Floats) -> tuple[Floats, Floats]:
    """From where to where all limits hold, as shares of the way; low > high for nowhere.

    Args:
        left: slack at the start, [limits, ...].
        right: at the end.
    """
    way = right - left
    step = np.where(way == 0.0, 1.0, way)
    zero = -left / step
    never = (way == 0.0) & (left < 0.0)
    low = np.where(way > 0.0, zero, np.where(never, np.inf, 0.0)).max(axis=0, initial=0.0)
    high = np.where(way < 0.0, zero, 1.0).min(axis=0, initial=1.0)
    return low, high


def _at(values: Floats, place: NDArray[np.int64]) -> Floats:
    """The entry of the last axis at each place, [...]."""
    values = np.broadcast_to(values, (*place.shape, values.shape[-1]))
    taken: Floats = np.take_along_axis(values, place[..., None], axis=-1)[..., 0]
    return taken
