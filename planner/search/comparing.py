"""Which candidate is better, and whether by more than the estimates can tell.

The score of a candidate is what the objective makes of its estimates, lower is better: latency
takes the geometric mean over the cells (batch sizes, prompt lengths) of a request's seconds per
output token, prefill included, so that twice as fast counts alike in all of them; tpot the same
mean of the seconds per output token while decoding, without prefill; throughput takes the seconds
per output token of the device at the mean rate; goodput the seconds of a request at the load, as
`specplan.planner.serving.capacity` models them.

Two candidates share most errors of a device: where both are wrong by the same factor, their ratio
is right. What counts against a gain is therefore what both err by beside that (`shared_error` of
the device), and the interval of the candidate's acceptance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.cells import at_cells, split
from specplan.cost_models.cost import Quantity, maximum, minimum
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.intervals import HALF_WIDTH_90, Interval, Seconds
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.objectives import Load, Objective
from specplan.planner.serving.capacity import Served, serve, times_of

Floats = NDArray[np.float64]
TIE = 0.01
"""Scores within this fraction are a tie: far below the error of any estimate."""


def score(candidate: Candidate, objective: Objective) -> float:
    """Seconds per output token, or of a request at a load, by medians; lower is better."""
    estimate = _price(candidate)
    if isinstance(objective, Load):
        return float(serve(objective, estimate, times_of(estimate)).score)
    return _score(estimate, objective)


def speedup(candidate: Candidate, plain: Candidate, objective: Objective) -> Interval:
    """How many times as fast as `plain`, with what the estimates leave open between the two.

    At a load that one of the two does not serve as a whole, how many times as many requests it
    serves within the limits.
    """
    base = _price(plain)
    own = _own(_price(candidate), base)
    if isinstance(objective, Load):
        of_plain = serve(objective, base, times_of(base))
        worlds = (serve(objective, own, times_of(own, end)) for end in ("median", "high", "low"))
        mean, slow, fast = (float(more_served(served, of_plain)) for served in worlds)
    else:
        plainly = score(plain, objective)
        mean, slow, fast = (
            plainly / _score(own, objective, end) for end in ("median", "high", "low")
        )
    return Interval(mean, min(mean, slow), max(mean, fast))


def on_common_loads(one: Candidate, other: Candidate) -> tuple[Candidate, Candidate]:
    """Two candidates with a price, each at the loads that both of them were priced for.

    On other devices another number of requests fits, and speeds are compared load by load.
    """
    loads = [_loads_of(_price(candidate)) for candidate in (one, other)]
    common = set(loads[0]) & set(loads[1])
    first, second = (
        replace(each, estimate=at_cells(_price(each), [load in common for load in own]))
        for each, own in zip((one, other), loads, strict=True)
    )
    return first, second


def _loads_of(estimate: Estimate) -> list[tuple[float, float]]:
    batch = _by_cell(estimate.batch)
    return list(zip(batch.tolist(), _by_cell(estimate.prompt_tokens, batch).tolist(), strict=True))


def cell_costs(candidate: Candidate, objective: Objective) -> NDArray[np.float64]:
    """What the objective's mean is taken over, lower is better, [cells].

    At a load it is what a round that is better in one cell lowers: the seconds of a request.
    """
    estimate = _price(candidate)
    return _cells(estimate, "latency" if isinstance(objective, Load) else objective)


def is_gain(speed: Interval) -> NDArray[np.bool_] | bool:
    """Whether a speedup is above 1 by more than its standard error, on a scale of logarithms.

    Five of six such gains are real where errors are normal.
    """
    return np.asarray(gain_margin(speed) > 0.0)


def gain_margin(speed: Interval) -> Quantity:
    """The logarithm of a speedup less its standard error, in `HALF_WIDTH_90` standard errors.

    The bounds of an interval of 90 % lie `HALF_WIDTH_90` standard errors from the mean.
    """
    margin: Quantity = np.log(speed.low) + (HALF_WIDTH_90 - 1.0) * np.log(speed.mean)
    return margin


def more_served(served: Served, base: Served) -> NDArray[np.float64]:
    """How many times as fast where both serve the whole load, else as many requests, [...]."""
    whole = np.logical_and(served.whole, base.whole)
    return np.where(whole, base.score / served.score, served.rate / base.rate)


def pays(candidate: Candidate, plain: Candidate, objective: Objective) -> NDArray[np.bool_]:
    """In which cells it beats `plain` by more than the error of the two, [cells]."""
    return np.asarray(is_gain(gains(_price(candidate), _price(plain), objective)))


def gains(estimate: Estimate, plain: Estimate, objective: Objective) -> Interval:
    """The speedup over `plain` cell by cell, with what the estimates leave open between the two.

    Under the objective tpot that of decoding, else that of whole requests, prefill included.
    """
    base = _user_seconds(plain, objective).median
    own = _user_seconds(_own(estimate, plain), objective)
    mean = base / own.median
    return Interval(mean, minimum(mean, base / own.high), maximum(mean, base / own.low))


def _user_seconds(estimate: Estimate, objective: Objective) -> Seconds:
    """What a user waits for: a token under the objective tpot, else a whole request."""
    return estimate.seconds_per_token if objective == "tpot" else estimate.request_seconds


def choose(
    candidates: Iterable[Candidate], plain: Candidate, objective: Objective
) -> Candidate | None:
    """The best admissible candidate; ties go to the simpler plan.

    A candidate that drafts must beat plain decoding by more than the error of the two (`is_gain`),
    unless plain decoding is itself refused by a limit.
    """
    field = [candidate for candidate in candidates if candidate.admissible]
    if plain.admissible:
        field = [c for c in field if c is plain or is_gain(speedup(c, plain, objective))]
    if not field:
        return None
    return simplest_of_best([(score(candidate, objective), candidate) for candidate in field])


def simplest_of_best(
    field: Sequence[tuple[float, Candidate]], cell: int | None = None
) -> Candidate:
    """The simplest of those whose cost is within a tie of the least, then the one of least cost.

    Args:
        field: candidates with a price and their costs, at least one.
        cell: of the workload that the costs are of; None for all of it.
    """
    least = min(cost for cost, _ in field)
    tied = [(cost, c) for cost, c in field if cost <= least * (1.0 + TIE)]
    return min(tied, key=lambda pair: (pair[1].simplicity_at(cell), pair[0], pair[1].words))[1]


def best_by_score(candidates: Iterable[Candidate], objective: Objective) -> Candidate | None:
    """The candidate of the lowest score among those with a price, ties to the simpler."""
    priced = [candidate for candidate in candidates if candidate.priced]
    return min(priced, key=lambda c: (score(c, objective), c.simplicity, c.words), default=None)


def _price(candidate: Candidate) -> Estimate:
    assert candidate.estimate is not None, "only prices are compared"
    return candidate.estimate


def _score(estimate: Estimate, objective: Objective, end: str = "median") -> float:
    cells = _cells(estimate, objective, end)
    if objective == "throughput":
        return float(1.0 / (1.0 / cells).mean())
    return float(geometric_mean(cells))


def geometric_mean(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the last axis, of positive numbers."""
    mean: NDArray[np.float64] = np.exp(np.log(cells).mean(axis=-1))
    return mean


def _cells(estimate: Estimate, objective: Objective, end: str = "median") -> NDArray[np.float64]:
    """Seconds per output token: of a request, of decoding for tpot, of the device for throughput.

    Args:
        estimate: of the plan.
        objective: not a load.
        end: of the intervals: `low`, `median` or `high`.
    """
    seconds = np.asarray(getattr(_user_seconds(estimate, objective), end), dtype=np.float64)
    per_token = seconds if objective == "tpot" else seconds / estimate.output_tokens
    if objective == "throughput":
        return np.asarray(per_token / estimate.batch)
    return np.broadcast_to(per_token, np.shape(estimate.batch))


def _own(estimate: Estimate, plain: Estimate) -> Estimate:
    """The estimate with intervals of what is open of its times beside those of `plain`."""
    shared = estimate.shared_error
    prefills = (times.prefill.error_beside(shared) for times in (estimate, plain))
    prefill = _against(estimate.prefill, plain.prefill, np.hypot(*prefills))
    of_round = own_round(estimate, plain)
    return replace(
        estimate,
        request_seconds=prefill + of_round.times(estimate.rounds),
        ttft=prefill + of_round * estimate.first_round,
        seconds_per_token=of_round.times(estimate.tokens_per_round.inverse),
    )


def own_round(estimate: Estimate, plain: Estimate) -> Seconds:
    """The time of a round with what is open of its ratio to that of `plain`.

    The errors that they do not share, of both, add in quadrature.
    """
    error = np.hypot(estimate.own_error, plain.own_error)
    return _against(estimate.seconds_per_round, plain.seconds_per_round, error)


def _against(seconds: Seconds, plain: Seconds, error: Quantity) -> Seconds:
    """A time within that relative error; a time is as long as itself."""
    factor = 1.0 + (seconds.median != plain.median) * error
    return Seconds(seconds.median, seconds.median / factor, seconds.median * factor)


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
    field = [c for c in candidates if c.admissible and not c.by_cell]
    if not field:
        return ()
    batch, prompt = (
        _by_cell(getattr(field[0].estimate, name)) for name in ("batch", "prompt_tokens")
    )
    device = np.stack([_by_cell(_served_speed(c).mean, batch) for c in field])
    user = device / batch
    front: list[Point] = []
    for length in sorted(set(prompt.tolist())):
        best = 0.0
        places = [(c, i) for c in range(len(field)) for i in np.flatnonzero(prompt == length)]
        for place in sorted(places, key=lambda at: (-user[at], -device[at])):
            if device[place] > best:
                best = device[place]
                front.append(_point(field[place[0]], int(place[1]), batch, prompt))
    return tuple(front)


def _point(candidate: Candidate, index: int, batch: Floats, prompt: Floats) -> Point:
    speed = split(_served_speed(candidate), len(batch))[index]
    requests = int(batch[index])
    return Point(candidate, requests, int(prompt[index]), speed * (1.0 / requests), speed)


def _served_speed(candidate: Candidate) -> Interval:
    assert candidate.estimate is not None, "what is admissible has a price"
    return candidate.estimate.tokens_per_second


def _by_cell(value: Quantity, like: Floats | None = None) -> Floats:
    """One entry per cell of the workload."""
    values = np.atleast_1d(np.asarray(value, dtype=np.float64))
    return values if like is None else np.broadcast_to(values, like.shape)
