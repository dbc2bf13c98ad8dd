"""Calibration of the constants of `law.py` by least squares on groups of other targets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from decisions.grid import GIVEN, Group, Setting
from decisions.law import (
    Constants,
    Given,
    around,
    by_device,
    by_echo,
    by_growth,
    round_ratio,
    tokens_per_round,
)

SCALE = 0.02
"""Residuals (of logarithms) beyond this count less than their square: odd runs pull less."""

Case = tuple[Group, Given]
Residual = Callable[[Group, Given, Setting, Constants], list[float]]


def calibrate(cases: Sequence[Case], start: Constants | None = None) -> Constants:
    """The constants that fit these groups; every target counts alike.

    Lengths and times are fitted apart, times at measured lengths. Constants that the groups say
    nothing about (no shape is known, no trees were run) stay as they start.

    Args:
        cases: groups whose measurements may be seen.
        start: where to start.
    """
    constants = start or Constants()
    constants = _fitted(cases, constants, {"decline": (-0.5, 1.0)}, _lengths(chains=True))
    constants = _fitted(cases, constants, {"ranking": (0.3, 1.2)}, _lengths(chains=False))
    times: dict[str, tuple[float, float]] = {
        "outside": (0.0, 0.5),
        "growth": (0.0, 0.5),
        "echo": (0.0, 2.0),
    }
    if any(given.shape is not None for _, given in cases):
        times |= {"alike": (0.1, 1.0)}
    constants = _fitted(cases, constants, times, _times)
    return _fitted(cases, constants, {"tree": (0.5, 2.0)}, _tree_times)


def _fitted(
    cases: Sequence[Case],
    start: Constants,
    bounds: dict[str, tuple[float, float]],
    residual: Residual,
) -> Constants:
    """Robust least squares over some constants, in parts of their bounds' span."""
    names = list(bounds)
    low, high = (np.array([bounds[name][side] for name in names]) for side in (0, 1))
    counts = Counter(group.target for group, _ in cases)

    def constants(parts: NDArray[np.float64]) -> Constants:
        values = low + (high - low) * parts
        return replace(start, **dict(zip(names, map(float, values), strict=True)))

    def residuals(parts: NDArray[np.float64]) -> list[float]:
        now = constants(parts)
        return [
            part / math.sqrt(counts[group.target])
            for group, given in cases
            for setting in group.runs
            if setting != GIVEN
            for part in residual(group, given, setting, now)
        ]

    begin = (np.array([getattr(start, name) for name in names]) - low) / (high - low)
    if not residuals(begin):
        return start
    return constants(
        least_squares(
            residuals, begin, bounds=(0.0, 1.0), diff_step=1e-3, loss="soft_l1", f_scale=SCALE
        ).x
    )


def _lengths(*, chains: bool) -> Residual:
    def residual(group: Group, given: Given, setting: Setting, constants: Constants) -> list[float]:
        if setting.is_chain is not chains:
            return []
        length = tokens_per_round(given.run.length, setting, constants)
        return [math.log(length / group.runs[setting].length)]

    return residual


def _times(group: Group, given: Given, setting: Setting, constants: Constants) -> list[float]:
    """Each law of `law.py` on its own, on chains; the witness of the baseline where it counts."""
    if not setting.is_chain:
        return []
    ratio, length = _measured_ratio(group, given, setting)
    laws = [(by_growth(setting, constants), 1.0)]
    laws.append((by_echo(given, setting, constants), given.credible))
    if given.times is not None:
        laws.append((by_device(given.times, setting, constants), 1.0))
    return [
        weight * math.log(around(law, given, setting, length, constants) / ratio)
        for law, weight in laws
    ]


def _tree_times(group: Group, given: Given, setting: Setting, constants: Constants) -> list[float]:
    if setting.is_chain:
        return []
    ratio, length = _measured_ratio(group, given, setting)
    return [math.log(round_ratio(given, setting, length, constants) / ratio)]


def _measured_ratio(group: Group, given: Given, setting: Setting) -> tuple[float, float]:
    """Measured seconds of a round over those of the given one; measured length."""
    run = group.runs[setting]
    return given.batch * run.length / run.speed / given.round_seconds, run.length
