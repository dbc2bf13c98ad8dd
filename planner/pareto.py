"""Speed for a user against speed of the device: what no other plan and batch beats in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from specplan.cost_models.intervals import Interval
from specplan.planner.candidates import Candidate


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
    points = [p for c in candidates if c.admissible and not c.by_cell for p in _points(c)]
    found: list[Point] = []
    for length in sorted({point.prompt_tokens for point in points}):
        best = 0.0
        same = [point for point in points if point.prompt_tokens == length]
        for point in sorted(same, key=lambda p: (-p.per_user.mean, -p.per_device.mean)):
            if point.per_device.mean > best:
                best = point.per_device.mean
                found.append(point)
    return tuple(found)


def _points(candidate: Candidate) -> Iterator[Point]:
    for estimate in candidate.estimates:
        speed, batch = estimate.tokens_per_second_end_to_end, int(estimate.batch)
        yield Point(candidate, batch, int(estimate.prompt_tokens), speed * (1.0 / batch), speed)
