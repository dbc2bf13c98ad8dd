"""A plan on our own server: requests arrive, join a continuous batch, and are timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specplan.cost_models.serving.quantiles import LoadTimes, Quantiles
from specplan.cost_models.serving.server import Server, StepTimes
from specplan.cost_models.serving.simulation import Served, Wanted, replay
from specplan.ir.plan import Plan
from specplan.ir.types.residency import reads_in_chunks
from specplan.measure.bench.arrivals import Planned
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.passes.chunk import Chunk
from specplan.runtime.continuous import serve
from specplan.runtime.executable import Executable
from specplan.runtime.requests import Request
from specplan.runtime.service import Arrival, BatchLimits, Service, Timer

SEEDS = 8
"""Replays of a trace whose times are put together: what a request gets in a step is drawn."""


class CpuTimer:
    """Seconds of this process's processor; waiting takes none.

    With one thread of torch it is the time that a machine takes which does nothing else.
    """

    def __init__(self) -> None:
        self._begin, self._waited = time.process_time(), 0.0

    def now(self) -> float:
        """See `Timer.now`."""
        return time.process_time() - self._begin + self._waited

    def wait(self, until: float) -> None:
        """See `Timer.wait`."""
        self._waited += max(until - self.now(), 0.0)


@dataclass(frozen=True)
class Loaded:
    """A plan under load.

    Attributes:
        rate: requests per second that arrive.
        requests: how many.
        measured: what they met.
        predicted: what was predicted for the same arrivals; None without known times of steps.
        service: of the run.
    """

    rate: float
    requests: int
    measured: LoadTimes
    predicted: LoadTimes | None
    service: Service


def served_plan(plan: Plan, server: Server) -> Plan:
    """The plan as a server runs it: with chunks of prompts along where it reads them so."""
    if server.prefill != "chunked":
        return plan
    return Chunk(server.step_tokens, server.running)(plan)


def arrivals_of(
    bench: Workbench, planned: Sequence[Planned], prompts: Sequence[TokenPrompt]
) -> list[Arrival]:
    """Requests that continue the prompts in turns, at the problem's sampling settings."""
    arrivals = []
    for index, one in enumerate(planned):
        prompt = prompts[index % len(prompts)]
        wanted = one.prompt_tokens or len(prompt.tokens)
        prompt = replace(prompt, tokens=prompt.tokens[-wanted:])
        more = {} if one.output_tokens is None else {"max_new_tokens": one.output_tokens}
        request = bench.request(prompt, bench.problem.seed + index, **more)
        arrivals.append(Arrival(one.seconds, request))
    return arrivals


def run_load(
    executable: Executable,
    arrivals: Sequence[Arrival],
    server: Server,
    steps: StepTimes | None = None,
    prompt_tokens: float = 1.0,
    timer: Timer | None = None,
) -> Loaded:
    """Serve requests, and predict what they meet.

    Args:
        executable: of `served_plan`.
        arrivals: the requests.
        server: its limits.
        steps: what its steps take; None predicts nothing.
        prompt_tokens: length of the prompts that `steps.prompt` is of.
        timer: of the server; real time when None.
    """
    limits = BatchLimits(server.running, server.step_tokens)
    executable.forget()
    service = serve(executable, arrivals, limits, clock=timer)
    predicted = None if steps is None else predict(arrivals, server, steps, prompt_tokens)
    span = arrivals[-1].seconds - arrivals[0].seconds
    rate = (len(arrivals) - 1) / span if span > 0 else float("inf")
    return Loaded(rate, len(arrivals), measured_times(service), predicted, service)


def measured_times(service: Service) -> LoadTimes:
    """What the requests of a run met."""
    several = [one for one in service.served if len(one.completion.tokens) > 1]
    end = max(one.last for one in service.served)
    return LoadTimes(
        Quantiles.of([one.ttft for one in service.served]),
        Quantiles.of([one.tpot for one in several] or [0.0]),
        Quantiles.of([one.seconds for one in service.served]),
        len(service.served) / end,
    )


def predict(
    arrivals: Sequence[Arrival], server: Server, steps: StepTimes, prompt_tokens: float
) -> LoadTimes:
    """What the requests are to meet: the same arrivals, replayed by a simulated server.

    Args:
        arrivals: the requests.
        server: its limits.
        steps: what its steps take.
        prompt_tokens: length of the prompts that `steps.prompt` is of.
    """
    trace = [
        Wanted(one.seconds, len(one.request.prompt_tokens) - 1, one.request.max_new_tokens)
        for one in arrivals
    ]
    runs = [replay(server, steps, prompt_tokens, trace, seed) for seed in range(SEEDS)]
    return _joined(runs)


def _joined(runs: Sequence[Served]) -> LoadTimes:
    ttft, tpot, request = (
        Quantiles.of(np.concatenate([getattr(run, name) for run in runs]))
        for name in ("ttft", "tpot", "request")
    )
    return LoadTimes(ttft, tpot, request, float(np.mean([run.throughput for run in runs])))


def first_steps(executable: Executable) -> int:
    """Steps after the last of a prompt is read until its first token; see `StepTimes`."""
    return 0 if reads_in_chunks(executable.plan) else 1


def measured_steps(
    executable: Executable,
    requests: Sequence[Arrival],
    batches: Sequence[int],
    timer: type[Timer],
    repeats: int = 3,
) -> StepTimes:
    """What a server's steps take with so many requests, which come as soon as others are done.

    The first ones have shorter outputs, each by another length, so that from then on a request
    joins while the others decode, as under load: its prompt then waits for their caches to make
    room, and texts of a step differ in length.

    Args:
        executable: of `served_plan`, which reads prompts before its steps.
        requests: that are served in turns, all alike in length.
        batches: numbers of requests, rising.
        timer: a new one for every run.
        repeats: times that each place is taken.
    """
    step, tokens, read, joined = [], [], [], []
    for batch in batches:
        turns = [requests[index % len(requests)].request for index in range(batch * repeats)]
        wanted = [Arrival(0.0, one) for one in _staggered(turns, batch)]
        executable.forget()
        service = serve(executable, wanted, BatchLimits(batch), clock=timer())
        full = [one for one in service.steps[1:] if one.running == batch]
        step.append(np.mean([s.seconds + (0.0 if s.joined else s.read_seconds) for s in full]))
        tokens.append(np.mean([one.tokens for one in full]) / batch)
        read += [one.read_seconds for one in service.steps if one.joined]
        joined += [one.joined for one in service.steps if one.joined]
    each, fixed = _line(joined, read)
    return StepTimes(
        np.array(batches, dtype=np.float64),
        np.array(step),
        np.array(tokens),
        prompt=np.array(each),
        prefill=np.array(fixed),
        first_steps=first_steps(executable),
    )


def _staggered(requests: Sequence[Request], batch: int) -> Iterator[Request]:
    """The same requests, the first `batch` with outputs of rising lengths."""
    for place, one in enumerate(requests):
        part = min(place + 1, batch) / batch
        yield replace(one, max_new_tokens=max(1, round(part * one.max_new_tokens)))


def _line(counts: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Seconds per prompt and beside all prompts, by least squares; neither is negative."""
    mean = float(np.mean(seconds)) / float(np.mean(counts))
    if len(set(counts)) < 2:
        return mean, 0.0
    each, fixed = np.polyfit(counts, seconds, 1)
    return (mean, 0.0) if fixed < 0.0 or each < 0.0 else (float(each), float(fixed))
