"""The most load that a server bears within limits, searched for once.

It does not depend on the load at hand, so the same search answers for every rate, and for each
comparison of a plan with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.serving.mean_values import Loads, most_within
from specplan.cost_models.serving.server import Server, StepTimes, Traffic

Floats = NDArray[np.float64]


def is_within(limits: Mapping[str, float], loads: Loads) -> NDArray[np.bool_]:
    """Whether a server under load keeps all limits, [...].

    Args:
        limits: seconds, by the time of `Loads` that each is put on.
        loads: the server.
    """
    limited = [getattr(loads, name) <= limit for name, limit in limits.items()]
    return np.asarray(np.logical_and.reduce([np.ones(loads.borne.shape, dtype=np.bool_), *limited]))


def most_load(
    server: Server, steps: StepTimes, traffic: Traffic, limits: Mapping[str, float]
) -> Floats:
    """`most_within` these limits, requests per second, [...]; that of one world is remembered.

    Args:
        server: its limits.
        steps: what a plan's steps take.
        traffic: the requests; its rate is not read.
        limits: as `is_within` takes them.
    """
    if steps.step.ndim > 1:  # many worlds, which are drawn anew
        return most_within(server, steps, traffic, lambda loads: is_within(limits, loads))
    arrays = (np.asarray(getattr(steps, item.name)) for item in fields(steps))
    numbers = tuple((array.shape, array.dtype.str, array.tobytes()) for array in arrays)
    of_any_rate = replace(traffic, rate=1.0)
    return _of_one_world(_ByNumbers(numbers, steps), server, of_any_rate, tuple(limits.items()))


@dataclass(frozen=True)
class _ByNumbers:
    """Step times that are equal where their numbers are, to the last bit."""

    numbers: tuple[tuple[tuple[int, ...], str, bytes], ...]
    steps: StepTimes = field(compare=False)


@lru_cache(maxsize=4096)
def _of_one_world(
    by_numbers: _ByNumbers, server: Server, traffic: Traffic, limits: tuple[tuple[str, float], ...]
) -> Floats:
    most = most_within(
        server, by_numbers.steps, traffic, lambda loads: is_within(dict(limits), loads)
    )
    most.flags.writeable = False  # whoever asks next is given the same numbers
    return most
