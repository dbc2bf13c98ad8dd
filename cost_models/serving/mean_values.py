"""A server under load in closed form: what a search can afford for every candidate.

Requests that decode share the device evenly, so that with `n` of them
`n tokens(n) / (output step(n))` requests are done per second of the steps. Prompts take their part
of the device: of every second, steps have `1 - rate prefill`. The number of requests that decode is
then a birth and death process with arrivals at the rate of requests; for evenly shared work its
distribution depends on the mean of the work alone (Kelly 1979, section 3.3). An arrival also takes
`prefill` seconds from those that decode, in which they would have completed `rate prefill / free`
requests: it moves their number by `1 / free` and not by 1. As a diffusion, the process has
`(1 + 1 / free^2) / 2` times the variance of one without prompts, and the logarithm of its
distribution is divided by that. Requests above the server's limit wait in line, and none of their
prompts is read.

The first token waits for the step or prefill under way (the mean residual, `E[T^2] / 2 E[T]`), for
prompts that came before (Pollaczek and Khinchine; for arrivals that are not Poisson by Kingman's
factor), for its own prompt, and, where prompts ride along in chunks, for the steps they ride on;
where other devices read it, for its caches to move.
Where a prefill holds few prompts, those that do not fit wait for the next one, and for a step
between.

`simulation.py` runs the same server step by step; `benchmarks/serving.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.serving.server import Floats, Server, StepTimes, Traffic

TINY, PRECISION = 1e-12, 14


@dataclass(frozen=True)
class Loads:
    """A server under load; every value is [...], and nan where the load is not borne.

    Attributes:
        borne: whether as many requests leave as arrive.
        decoding: mean number of requests that decode.
        ttft: mean seconds from arrival to the first token.
        tpot: mean seconds per further token.
        request: mean seconds from arrival to the last token.
    """

    borne: NDArray[np.bool_]
    decoding: Floats
    ttft: Floats
    tpot: Floats
    request: Floats


def under_load(server: Server, times: StepTimes, traffic: Traffic) -> Loads:
    """A server under load by mean values; see the module.

    Args:
        server: its limits; more requests than `times` knows never decode together.
        times: of the plan's steps, [..., batches].
        traffic: the requests.
    """
    rate = np.asarray(traffic.rate, dtype=np.float64)
    each_rate = rate[..., None]
    output = max(traffic.output_tokens - (1 - times.first_steps), 0.5)
    most = int(min(server.running, times.batches[-1]))
    requests = np.arange(1, most + 1, dtype=np.float64)
    step, tokens = times.at(requests)
    steps = (output + (tokens - 1.0) / 2.0) / tokens  # the last step emits more than is wanted
    reading = _reading(server, traffic, times, each_rate, step)
    free = np.maximum(1.0 - each_rate * reading, TINY)
    ridden = _ridden(server, traffic, reading, step)
    leave = requests / (steps * step / free + ridden)
    load = rate / _saturated(most, (steps * step)[..., -1], reading[..., -1], ridden[..., -1])
    rides = _rides(server, traffic, times, reading[..., -1], step[..., -1])
    borne = (load < 1.0) & (rate * rides < 1.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        spread = (1.0 + traffic.burstiness / free**2) / 2.0
        share = _distribution(each_rate, leave, load, spread)
        tail = share[..., -1] * load / (1.0 - load)  # requests in line, beyond the limit
        busy = 1.0 - share[..., 0]
        full = share[..., 1:].copy()
        full[..., -1] += tail
        mean = (full * step).sum(axis=-1) / full.sum(axis=-1)
        riding = rate * (full * ridden).sum(axis=-1) / full.sum(axis=-1)
        decoding = (full * requests).sum(axis=-1) - riding
        # Requests in line differ little in their work: half of the wait of exponential ones.
        line = tail / (1.0 - load) / rate * (traffic.burstiness / 2.0)
        first, decode = _first_token(server, traffic, times, mean, busy), decoding / rate
        if server.prefill == "elsewhere":  # a prompt is read before the line
            moving = _moving(server, traffic, times)
            decode = decode + line + (1 - times.first_steps) * moving
            first = first + times.first_steps * moving
        else:
            first = first + line
    return Loads(
        borne=np.asarray(borne),
        decoding=np.where(borne, decoding, np.nan),
        ttft=np.where(borne, first + times.first_steps * mean, np.nan),
        tpot=np.where(borne, decode / output, np.nan),
        request=np.where(borne, first + decode, np.nan),
    )


def _saturated(most: int, decode: Floats, reading: Floats, ridden: Floats) -> Floats:
    """Requests per second that leave while others wait in line, [...].

    Then a prompt is read whenever a request leaves, not whenever one arrives: the rate `m` at which
    `m (decode / (1 - m reading) + ridden) = most`.

    Args:
        most: requests that decode together.
        decode: seconds of a request's steps with so many, prompts aside.
        reading: seconds that a prompt takes of the device.
        ridden: see `_ridden`.
    """
    linear = decode + ridden + most * reading
    return np.asarray(2.0 * most / (linear + np.sqrt(linear**2 - 4.0 * ridden * reading * most)))


def _distribution(rate: Floats, leave: Floats, load: Floats, spread: Floats) -> Floats:
    """Probabilities that 0, 1, ... up to the limit decode, without a line, [..., most + 1].

    Args:
        rate: requests per second, [..., 1].
        leave: per second while 1, 2, ... decode, [..., most].
        load: share of what leaves while others wait, [...].
        spread: variance of arrivals and departures, in those of Poisson processes, [..., most].
    """
    logs = np.concatenate(
        [np.zeros((*leave.shape[:-1], 1)), np.cumsum(np.log(rate / leave) / spread, axis=-1)],
        axis=-1,
    )
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    line = weights[..., -1] * load / np.maximum(1.0 - load, TINY)
    total = weights.sum(axis=-1) + line
    share: Floats = weights / total[..., None]
    return share


def _reading(
    server: Server, traffic: Traffic, times: StepTimes, rate: Floats, step: Floats
) -> Floats:
    """Seconds that a prompt takes of the device that decodes.

    A prefill before a step is shared by the prompts that came since the last one.

    Args:
        server: its order of work.
        traffic: the requests.
        times: of the plan.
        rate: requests per second, broadcast to `step`.
        step: seconds of a step, [..., requests].
    """
    if server.prefill == "elsewhere":
        return np.zeros(np.broadcast_shapes(rate.shape, step.shape))
    prompt, prefill = times.prompt[..., None], times.prefill[..., None]
    if server.prefill == "chunked":
        return np.asarray(prompt + 0.0 * step + 0.0 * rate)
    most = max(server.step_tokens / max(traffic.prompt_tokens, 1.0), 1.0)
    # The more come in a step and its prefill, the more share a prefill; at first, very many come.
    reading = (prompt + prefill / (rate * step)) / (1.0 + prefill / step)
    reading = np.minimum(reading, prompt + prefill)
    in_step = rate * step
    for _ in range(4):
        come = in_step / np.maximum(1.0 - rate * reading, 0.02)
        together = np.minimum(np.maximum(come / -np.expm1(-come), 1.0), most)
        reading = (reading + prompt + prefill / together) / 2.0
    return np.asarray(reading)


def _passes(server: Server, traffic: Traffic) -> float:
    """Steps, or prefills, that a prompt takes: the part of one where several prompts share it."""
    passes = traffic.prompt_tokens / server.step_tokens
    if server.prefill == "chunked" or not passes:
        return passes
    return 1.0 / max(1.0 // passes, 1.0)


def _ridden(server: Server, traffic: Traffic, reading: Floats, step: Floats) -> Floats:
    """Seconds for which a request has a place among those that decode while its prompt is read."""
    if server.prefill != "chunked":
        return np.zeros_like(step)
    return np.asarray(reading + step * max(_passes(server, traffic), 1.0))


def _rides(
    server: Server, traffic: Traffic, times: StepTimes, reading: Floats, step: Floats
) -> Floats:
    """Seconds for which a prompt keeps the reading of prompts from others.

    Each device elsewhere has a link of its own, over which caches move while it reads on.
    """
    if server.prefill == "elsewhere":
        return np.asarray(np.maximum(times.prompt + times.prefill, times.transfer) / server.readers)
    return np.asarray(reading + step * _passes(server, traffic))


def _first_token(
    server: Server, traffic: Traffic, times: StepTimes, step: Floats, busy: Floats
) -> Floats:
    """Seconds from arrival until a prompt has been read, the line before the server aside.

    Args:
        server: its order of work.
        traffic: the requests.
        times: of the plan.
        step: seconds of a step, in the mean of time, [...].
        busy: share of time in which requests decode, [...].
    """
    rate, alone = np.asarray(traffic.rate, dtype=np.float64), times.prompt + times.prefill
    if server.prefill == "elsewhere":
        return alone + _queue(traffic, alone, server.readers)
    own = _reading(server, traffic, times, rate[..., None], step[..., None])[..., 0]
    used = rate * own
    mixed = step / (1.0 - used)
    passes = _passes(server, traffic)
    chunked = server.prefill == "chunked"
    if chunked and passes > 1.0:
        rides = own + (step * busy + times.prefill * (1.0 - busy)) * passes
        return busy * mixed / 2.0 + _queue(traffic, rides) + rides
    second = mixed**2 + traffic.burstiness * rate * own**2 * mixed
    beside, others = step if chunked else times.prefill, rate * second / mixed
    together = second / (2.0 * mixed) + beside + times.prompt * (1.0 + others)
    fitting = others * (1.0 - passes) / (others * passes + 1.0 - passes + TINY)
    fixed = step * busy + (0.0 if chunked else times.prefill)
    few = _queue(traffic, times.prompt + fixed * passes) + busy * step / 2.0
    few = few + beside + times.prompt * (1.0 + fitting)
    riding = few if passes > 0.5 else np.maximum(together, few)
    return np.asarray(busy * riding + (1.0 - busy) * (alone + _queue(traffic, own)))


def _moving(server: Server, traffic: Traffic, times: StepTimes) -> Floats:
    """Seconds from the end of a prompt's reading until its caches are where it decodes, [...].

    Of two stages whose times are constant, requests wait as if the longer were alone (Friedman
    1965), so that a link keeps them waiting where it takes longer than the reading.
    """
    reading, link = times.prompt + times.prefill, np.asarray(times.transfer)
    both = _queue(traffic, np.maximum(reading, link), server.readers)
    return np.asarray(link + both - _queue(traffic, reading, server.readers))


def _queue(traffic: Traffic, seconds: Floats, readers: int = 1) -> Floats:
    """Mean seconds until all prompts before have been read, each of which takes so many, [...].

    Several readers are the queue of constant times that Cosmetatos (1975) approximates from that of
    exponential ones, in which an arrival waits with Erlang's probability.
    """
    rate = np.asarray(traffic.rate, dtype=np.float64)
    work = rate * seconds
    used = np.clip(work / readers, TINY, 1.0)
    left = np.maximum(1.0 - work / readers, TINY)
    blocked: Floats = np.ones_like(work)  # Erlang's loss formula, one reader after another
    for count in range(1, readers + 1):
        blocked = work * blocked / (count + work * blocked)
    waits = blocked / (left + used * blocked)
    several = (readers - 1) * (np.sqrt(4.0 + 5.0 * readers) - 2.0) / (16.0 * readers)
    constant = 1.0 + left * several / used
    return np.asarray(traffic.burstiness * waits * seconds / (2.0 * readers * left) * constant)


def most_within(
    server: Server,
    times: StepTimes,
    traffic: Traffic,
    within: Callable[[Loads], NDArray[np.bool_]],
) -> Floats:
    """The most requests per second that are borne within limits, [...]; 0 where none are.

    By bisection: every time grows with the rate. Within `2^-PRECISION` of the most that the steps
    could serve if they read no prompts.

    Args:
        server: its limits.
        times: of the plan's steps.
        traffic: the requests; its rate is not read.
        within: whether a server under load keeps all limits, [...].
    """
    most = int(min(server.running, times.batches[-1]))
    step, tokens = times.at(np.array([float(most)]))
    high = (most * tokens / step / max(traffic.output_tokens - 1.0, 0.5))[..., 0] * 1.01
    if server.prefill == "elsewhere":
        high = np.minimum(high, 1.0 / np.maximum(_rides(server, traffic, times, step, step), TINY))
    top, low = high, np.zeros_like(high)
    for _ in range(PRECISION):
        rate = (low + high) / 2.0
        loads = under_load(server, times, replace(traffic, rate=rate))
        met = loads.borne & within(loads)
        low, high = np.where(met, rate, low), np.where(met, high, rate)
    idle = under_load(server, times, replace(traffic, rate=top * 2.0**-PRECISION))
    return np.where(idle.borne & within(idle), low, 0.0)
