"""How noisy single runs are, from the runs themselves, and what that alone costs a decision."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decisions.grid import GIVEN, Group

_DRAWS = 2000


@dataclass(frozen=True)
class Noise:
    """Scatter of single runs.

    Attributes:
        run: standard deviation of the logarithm of a run's tokens per second; an upper bound, as
            what tasks really differ in is in it.
        freedom: degrees of freedom behind it.
        mean_regret: mean loss of who measures all settings once more, with that noise, and takes
            the best: no decision can be asked to lose less on a grid of single runs.
        p95_regret: its 95th percentile over groups and draws.
    """

    run: float
    freedom: int
    mean_regret: float
    p95_regret: float


def estimate_noise(groups: Sequence[Group]) -> Noise | None:
    """From chains: tasks of one target and drafter, once the measured length is accounted for.

    Per target, drafter and chain, log(speed / speed of the given setting) is a line over the given
    setting's length; the residuals hold the noise of two runs. None where too little was run.
    """
    series: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    for group in groups:
        given = group.runs[GIVEN]
        for setting, other in group.runs.items():
            if setting.is_chain and setting != GIVEN:
                key = (group.target, group.drafter, group.batch, setting)
                series[key].append((given.length, math.log(other.speed / given.speed)))
    squares, freedom = 0.0, 0
    for points in series.values():
        if len(points) > 2:
            lengths, logs = np.array(points).T
            line = np.polyfit(lengths, logs, 1)
            squares += float(((logs - np.polyval(line, lengths)) ** 2).sum())
            freedom += len(points) - 2
    if not freedom:
        return None
    run = math.sqrt(squares / freedom / 2.0)
    regrets = _regrets(groups, run)
    return Noise(run, freedom, float(regrets.mean()), float(np.quantile(regrets, 0.95)))


def _regrets(groups: Sequence[Group], run: float) -> NDArray[np.float64]:
    """Of a choice by speeds with fresh noise, [groups x draws]."""
    rng = np.random.default_rng(0)
    regrets = []
    for group in groups:
        speeds = np.array([group.baseline, *(item.speed for item in group.runs.values())])
        noisy = np.log(speeds) + run * rng.standard_normal((_DRAWS, len(speeds)))
        regrets.append(1.0 - speeds[noisy.argmax(axis=1)] / speeds.max())
    return np.concatenate(regrets)
