"""Speed for a user against speed of the device: what no other plan and batch beats in both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.cells import split
from specplan.cost_models.cost import Quantity
from specplan.cost_models.intervals import Interval
from specplan.planner.search.candidates import Candidate

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """A plan at one load.

    Attributes:
        candidate: the plan.
        batch: requests that run together.
        prompt_tokens: of each request.
        per_user: output tokens per second of one request, prompt included.
        per_device: output tokens per second of the whole batch.
    """

    candidate: Candidate
    batch: int
    prompt_tokens: int
    per_user: Interval
    per_device: Interval


def pareto_front(candidates: Iterable[Candidate]) -> tuple[Point, ...]:
    """For each prompt length, the points that none is faster than in both, fastest user first.

    Args:
        candidates: those that are admissible are compared, at every batch size of the workload;
            schedules are left out, their points are those of their rounds.
    """
    kept = [c for c in candidates if c.admissible and not c.by_cell]
    if not kept:
        return ()
    batch, prompt = (_cells(getattr(kept[0].estimate, name)) for name in ("batch", "prompt_tokens"))
    device = np.stack([_cells(_speed(c).mean, batch) for c in kept])
    user = device / batch
    found: list[Point] = []
    for length in sorted(set(prompt.tolist())):
        best = 0.0
        places = [(c, i) for c in range(len(kept)) for i in np.flatnonzero(prompt == length)]
        for place in sorted(places, key=lambda at: (-user[at], -device[at])):
            if device[place] > best:
                best = device[place]
                found.append(_point(kept[place[0]], int(place[1]), batch, prompt))
    return tuple(found)


def _point(candidate: Candidate, index: int, batch: Floats, prompt: Floats) -> Point:
    speed = split(_speed(candidate), len(batch))[index]
    requests = int(batch[index])
    return Point(candidate, requests, int(prompt[index]), speed * (1.0 / requests), speed)


def _speed(candidate: Candidate) -> Interval:
    assert candidate.estimate is not None, "what is admissible has a price"
    return candidate.estimate.tokens_per_second_end_to_end


def _cells(value: Quantity, like: Floats | None = None) -> Floats:
    """One entry per cell of the workload."""
    found = np.atleast_1d(np.asarray(value, dtype=np.float64))
    return found if like is None else np.broadcast_to(found, like.shape)
