"""A plan under load: what a server that batches continuously serves with it, within the limits.

All numbers of this file are modelled by mean values (`cost_models/serving/mean_values.py`) from the
estimates by batch size: a step with `n` requests takes what a round of the estimate for a batch of
`n` takes, and prompts what prefills of these batches do.
Every prompt length is served apart, as if all requests had it; the results are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.estimate import Estimate
from specplan.cost_models.serving.mean_values import Loads, under_load
from specplan.cost_models.serving.server import StepTimes, Traffic, step_times
from specplan.planner.search.objectives import Load
from specplan.planner.serving.most_load import is_within, most_load

Floats = NDArray[np.float64]

_WAITING, _MISSED = 1e6, 1e9
"""Requests in flight that stand for a load that is not borne, and for limits that are never met:
more than a server that bears the load has, so that whoever serves the whole load comes first."""


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
        load: the objective.
        prompt_tokens: length of the prompts.
        steps: what the plan's steps take at the batch sizes that fit in memory.
        traffic: the requests.
        loads: the server at this load, nan where it is not borne.
        least: requests per second at the batch size that serves least, limits aside, [...].
        all_fit: whether all batch sizes of the workload fit in memory.
    """

    load: Load
    prompt_tokens: int
    steps: StepTimes
    traffic: Traffic
    loads: Loads
    least: Floats
    all_fit: bool

    @property
    def batches(self) -> Floats:
        """Batch sizes that fit in memory, [batches]."""
        return self.steps.batches

    @property
    def times(self) -> Times:
        """Mean times of a request at this load, nan where it is not borne, [...]."""
        return Times(self.loads.request, self.loads.ttft, self.loads.tpot)

    @property
    def in_flight(self) -> Floats:
        """Requests in the server, those that wait included, by Little's law, [...]."""
        return self.loads.request * self.load.request_rate

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """Whether the load is borne and the limits are met, [...]."""
        return self.loads.borne & is_within(self._limits, self.loads)

    @cached_property
    def most(self) -> Floats:
        """Most load that is borne within the limits, requests per second, [...]."""
        return most_load(self.load.server, self.steps, self.traffic, self._limits)

    @cached_property
    def goodput(self) -> Floats:
        """Requests per second served within the limits, [...]."""
        served: Floats = np.full(self.whole.shape, self.load.request_rate)
        if self.whole.any():  # only worlds that do not bear it need a search for what they bear
            rest = ~self.whole
            some = replace(self, steps=_of_worlds(self.steps, rest)).most if rest.any() else 0.0
            served[rest] = np.minimum(some, self.load.request_rate)
            return served
        return np.asarray(np.minimum(self.most, served))

    @property
    def bound(self) -> str:
        """What stands in the way of a higher `most`, in the first of the worlds.

        `limits`, `memory` (of a larger batch), `batch_sizes` (larger ones are not known), `running`
        (the server takes no more requests at a time) or `device`.
        """
        if self._limits:
            borne = most_load(self.load.server, self.steps, self.traffic, {})
            if np.ravel(self.most)[0] < np.ravel(borne)[0] * 0.999:
                return "limits"
        rates = (self.batches * self.steps.tokens / self.steps.step).reshape(-1, len(self.batches))
        if rates[0, -1] < rates[0].max() * (1.0 - 1e-9):
            return "device"
        if self.load.server.running <= self.batches[-1]:
            return "running"
        return "batch_sizes" if self.all_fit else "memory"

    @property
    def _limits(self) -> dict[str, float]:
        """The limits of the load, by the time of `Loads` that each is put on."""
        load = self.load
        limits = {"request": load.request_latency, "ttft": load.ttft, "tpot": load.tpot}
        return {name: limit for name, limit in limits.items() if limit is not None}


def _of_worlds(steps: StepTimes, chosen: NDArray[np.bool_]) -> StepTimes:
    """The step times of some of their worlds.

    Args:
        steps: of all worlds, [..., batches].
        chosen: [...].
    """
    of_world = (np.broadcast_to(times, chosen.shape) for times in (steps.prompt, steps.prefill))
    prompt, prefill = (times[chosen] for times in of_world)
    return replace(
        steps, step=steps.step[chosen], tokens=steps.tokens[chosen], prompt=prompt, prefill=prefill
    )


@dataclass(frozen=True)
class NothingFits:
    """A length of prompts at which no batch size fits in memory; see `AtLength`."""

    prompt_tokens: int
    least: Floats

    bound = "memory"

    @property
    def batches(self) -> Floats:
        """None."""
        return np.empty(0)

    @property
    def in_flight(self) -> Floats:
        """Unknown, [...]."""
        return np.full(self.least.shape, np.nan)

    @property
    def times(self) -> Times:
        """Unknown, [...]."""
        return Times(self.in_flight, self.in_flight, self.in_flight)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Never, [...]."""
        return np.zeros(self.least.shape, dtype=np.bool_)

    @property
    def most(self) -> Floats:
        """Nothing, [...]."""
        return np.zeros(self.least.shape)

    goodput = most


@dataclass(frozen=True)
class Served:
    """What a plan serves of a load.

    Attributes:
        load: the objective.
        lengths: one for each length of prompts, rising.
    """

    load: Load
    lengths: tuple[AtLength | NothingFits, ...]

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

        Where the load is not served as a whole, more requests are taken to be in flight than any
        server holds: so more goodput always comes first, and seconds decide between those that
        serve all.
        """
        seconds = _mean(at.times.request for at in self.lengths)
        if self.whole.all():
            return seconds
        waiting = np.where(self.admissible, _WAITING, _MISSED)
        return np.where(self.whole, seconds, waiting / self.rate)

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
    tokens = np.broadcast_to(estimate.tokens_per_round.mean, batch.shape)
    outputs = float(np.max(estimate.output_tokens))
    lengths: list[AtLength | NothingFits] = []
    for length in np.unique(prompts):
        cells = np.flatnonzero(prompts == length)
        cells = cells[np.argsort(batch[cells])]
        of_length = _only(times, cells)
        fitting = fits[cells]
        known = int(fitting.sum()) if fitting.all() else int(fitting.argmin())
        least = (batch[cells] / of_length.request).min(axis=-1)
        if not known:
            lengths.append(NothingFits(int(length), least))
            continue
        step = (of_length.tpot * tokens[cells])[..., :known]
        moved = float(np.ravel(estimate.transfer)[-1])
        # the rest is the first step, and what a cache takes that comes from elsewhere
        prefills = np.maximum(of_length.ttft[..., :known] - step - moved, 0.0)
        together = load.server.step_tokens / max(float(length), 1.0)
        steps = step_times(
            batch[cells][:known], step, tokens[cells][:known], prefills, together, first_steps=1
        )
        steps = replace(steps, transfer=moved)
        traffic = Traffic(load.request_rate, float(length), outputs, load.burstiness)
        loads = under_load(load.server, steps, traffic)
        all_fit = known == len(cells)
        lengths.append(AtLength(load, int(length), steps, traffic, loads, least, all_fit))
    return Served(load, tuple(lengths))


def _mean(parts: Iterable[Floats]) -> Floats:
    mean: Floats = np.mean(list(parts), axis=0)
    return mean


def _only(times: Times, cells: NDArray[np.int64]) -> Times:
    return times.each(lambda seconds: seconds[..., cells])
