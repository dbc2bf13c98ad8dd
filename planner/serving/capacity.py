"""A plan under load: what it serves within the limits, by the law of a loaded server.

All numbers of this file are modelled: the seconds of a request with `N` in flight are those of the
estimate for a batch of `N`, and `N` follows from Little's law
(`cost_models/serving/loaded_server.py`).
Arrivals that crowd by chance are left out, so that real requests wait longer near the most load.
Every prompt length is served apart, as if all requests had it; the results are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.estimate import Estimate
from specplan.cost_models.serving.loaded_server import between, most_served, requests_in_flight
from specplan.planner.search.objectives import Load

Floats = NDArray[np.float64]

_WAITING, _MISSED = 2.0, 4.0
"""Requests in flight, in largest batches, that stand for a load that is not borne, and for limits
that no number in flight keeps. Above 1: whoever serves the whole load comes first."""


@dataclass(frozen=True)
class Times:
    """Seconds of one request in every cell of a workload, [..., cells].

    Attributes:
        request: prompt and output.
        ttft: until the first token.
        tpot: per output token while decoding.
    """

    request: Floats
    ttft: Floats
    tpot: Floats

    def each(self, function: Callable[[Floats], Floats]) -> Times:
        """A function of every one of them."""
        return Times(function(self.request), function(self.ttft), function(self.tpot))


def times_of(estimate: Estimate, end: str = "median") -> Times:
    """The times of an estimate at one end of their intervals: `low`, `median` or `high`."""
    measures = (estimate.request_seconds, estimate.ttft, estimate.seconds_per_token)
    shape = np.shape(np.atleast_1d(estimate.batch))
    return Times(*(np.broadcast_to(getattr(seconds, end), shape) for seconds in measures))


@dataclass(frozen=True)
class AtLength:
    """What is served of requests with one length of prompt; `[...]` as in the times given.

    Attributes:
        prompt_tokens: length of the prompts.
        in_flight: requests in flight at this load; nan where it is not borne, [...].
        times: at that number in flight, nan likewise, [...].
        whole: whether the load is borne and the limits are kept, [...].
        goodput: requests per second served within the limits, [...].
        most: most load that is borne within the limits, requests per second, [...].
        least: requests per second at the batch size that serves least, limits aside, [...].
        batches: batch sizes that fit in memory, [batches].
        bound: what stands in the way of a higher `most`: `limits`, `memory` (of a larger batch),
            `batch_sizes` (larger ones are not known) or `device`; by the first of [...].
    """

    prompt_tokens: int
    in_flight: Floats
    times: Times
    whole: NDArray[np.bool_]
    goodput: Floats
    most: Floats
    least: Floats
    batches: Floats
    bound: str


@dataclass(frozen=True)
class Served:
    """What a plan serves of a load.

    Attributes:
        load: the objective.
        largest: the largest batch size of the workload.
        lengths: one for each length of prompts, rising.
    """

    load: Load
    largest: float
    lengths: tuple[AtLength, ...]

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """Whether the whole load is served within the limits, [...]."""
        return np.asarray(np.logical_and.reduce([at.whole for at in self.lengths]))

    @cached_property
    def goodput(self) -> Floats:
        """Requests per second served within the limits, mean over prompt lengths, [...]."""
        return _mean(at.goodput for at in self.lengths)

    @cached_property
    def most(self) -> Floats:
        """Most load that is borne within the limits, mean over prompt lengths, [...]."""
        return _mean(at.most for at in self.lengths)

    @cached_property
    def admissible(self) -> NDArray[np.bool_]:
        """Whether at every prompt length some requests are served within the limits, [...]."""
        return np.asarray(np.logical_and.reduce([at.goodput > 0.0 for at in self.lengths]))

    @cached_property
    def score(self) -> Floats:
        """Seconds of a request, lower is better, [...].

        By Little's law they are the requests in flight over those served per second. Where the
        load is not served as a whole, more are taken to be in flight than any batch holds: so
        more goodput always comes first, and seconds decide between those that serve all.
        """
        in_flight = _mean(at.in_flight for at in self.lengths)
        waiting = self.largest * np.where(self.admissible, _WAITING, _MISSED)
        queued = waiting / self.rate
        return np.where(self.whole, in_flight / self.load.request_rate, queued)

    @cached_property
    def rate(self) -> Floats:
        """The goodput, and where limits leave none, what is served at the least, [...]."""
        return _mean(np.where(at.goodput > 0.0, at.goodput, at.least) for at in self.lengths)


def serve(load: Load, estimate: Estimate, times: Times) -> Served:
    """What a plan serves of a load.

    Args:
        load: the objective.
        estimate: of the plan; its batch sizes, prompt lengths and memory are read.
        times: of a request in the estimate's cells, [..., cells].
    """
    batch = np.atleast_1d(np.asarray(estimate.batch, dtype=np.float64))
    prompts = np.broadcast_to(estimate.prompt_tokens, batch.shape)
    fits = np.broadcast_to(estimate.memory.total <= load.memory, batch.shape)
    lengths = []
    for length in np.unique(prompts):
        cells = np.flatnonzero(prompts == length)
        cells = cells[np.argsort(batch[cells])]
        of_length = _only(times, cells)
        lengths.append(_at_length(load, int(length), batch[cells], fits[cells], of_length))
    return Served(load, float(batch.max()), tuple(lengths))


def _at_length(
    load: Load, prompt: int, batch: Floats, fits: NDArray[np.bool_], times: Times
) -> AtLength:
    """What is served of one length of prompts.

    Args:
        load: the objective.
        prompt: its length.
        batch: batch sizes, rising, [batches].
        fits: whether the plan has the memory for each.
        times: [..., batches].
    """
    fitting = int(fits.sum()) if fits.all() else int(fits.argmin())
    least = (batch / times.request).min(axis=-1)
    if not fitting:
        unknown = np.full(least.shape, np.nan)
        none = np.zeros(least.shape)
        nowhere = Times(unknown, unknown, unknown)
        whole = np.zeros(least.shape, dtype=np.bool_)
        empty = batch[:0]
        return AtLength(prompt, unknown, nowhere, whole, none, none, least, empty, "memory")
    known, fitting_times = batch[:fitting], _only(times, slice(fitting))
    number = requests_in_flight(known, fitting_times.request, load.request_rate)
    reached = fitting_times.each(lambda seconds: between(known, seconds, number))
    whole = ~np.isnan(number) & (_slack(load, reached) >= 0.0).all(axis=0)
    most = most_served(known, fitting_times.request, _slack(load, fitting_times))
    goodput = np.where(whole, load.request_rate, np.minimum(most, load.request_rate))
    rates = (known / fitting_times.request).reshape(-1, fitting)[0]
    bound = _bound(rates, float(most.flat[0]), fitting == len(batch))
    return AtLength(prompt, number, reached, whole, goodput, most, least, known, bound)


def _bound(rates: Floats, most: float, all_fit: bool) -> str:
    """What keeps a plan from serving more: of its rates by batch size, [batches]."""
    if most < rates.max() * (1.0 - 1e-9):
        return "limits"
    if rates[-1] < rates.max():
        return "device"
    return "batch_sizes" if all_fit else "memory"


def _slack(load: Load, times: Times) -> Floats:
    """Each limit less what is limited, [limits, ...]."""
    pairs = (
        (load.request_latency, times.request),
        (load.ttft, times.ttft),
        (load.tpot, times.tpot),
    )
    slack = [limit - seconds for limit, seconds in pairs if limit is not None]
    return np.array(slack) if slack else np.empty((0, *times.request.shape))


def _mean(parts: Iterable[Floats]) -> Floats:
    mean: Floats = np.mean(list(parts), axis=0)
    return mean


def _only(times: Times, cells: NDArray[np.int64] | slice) -> Times:
    return times.each(lambda seconds: seconds[..., cells])
