"""A server that batches continuously, step by step: the distributions behind the mean values.

A discrete-event simulation with one resource, the device, so that an event is a step (or several
between which nobody comes or goes) and a clock is a number; a simulation library would add only its
queue. Arrivals, and how many tokens a request gets in a step, are drawn; a seed gives the same run
again.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from specplan.cost_models.serving.server import Floats, Server, StepTimes, Traffic

_TOGETHER = 512
"""Most steps that are computed at once."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that a trace has.

    Attributes:
        arrival: seconds.
        prompt_tokens: of its prompt.
        output_tokens: that it takes.
    """

    arrival: float
    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True)
class Served:
    """What requests met, in the order of their arrival; without those that warm the server up.

    Attributes:
        ttft: seconds from arrival to the first token, [requests].
        tpot: seconds per further token, [requests].
        request: seconds from arrival to the last token, [requests].
        throughput: requests per second.
    """

    ttft: Floats
    tpot: Floats
    request: Floats
    throughput: float


@dataclass(slots=True)
class _Request:
    """One request: when it arrived, what is left of its prompt, and when its tokens came."""

    arrival: float
    ready: float
    unread: float
    output: float
    first: float = math.nan
    done: float = math.nan


def arrivals(traffic: Traffic, requests: int, rng: np.random.Generator) -> Floats:
    """Times of arrival: gamma distributed gaps with the traffic's burstiness, [requests]."""
    if traffic.burstiness <= 0.0:
        return np.arange(1, requests + 1) / traffic.rate
    shape = 1.0 / traffic.burstiness
    gaps = rng.gamma(shape, 1.0 / (shape * traffic.rate), requests)
    return np.asarray(np.cumsum(gaps))


def simulate(
    server: Server,
    times: StepTimes,
    traffic: Traffic,
    *,
    requests: int = 2000,
    seed: int = 0,
) -> Served:
    """Serve requests step by step.

    Args:
        server: its limits and order of work.
        times: of the plan's steps in one world: `step` and `tokens` are [batches].
        traffic: the requests.
        requests: how many arrive; the first fifth warms the server up and is not counted.
        seed: of arrivals and tokens.
    """
    rng = np.random.default_rng(seed)
    when = arrivals(traffic, requests, rng)
    lengths = (traffic.prompt_tokens, traffic.output_tokens)
    trace = [Wanted(float(arrival), *lengths) for arrival in when]
    return _served(_Device(server, times, traffic.prompt_tokens, rng), trace, len(trace) // 5)


def replay(
    server: Server, times: StepTimes, prompt_tokens: float, trace: Sequence[Wanted], seed: int = 0
) -> Served:
    """Serve the requests of a trace step by step; all of them count.

    Args:
        server: its limits and order of work.
        times: of the plan's steps in one world.
        prompt_tokens: length of the prompts that `times.prompt` is of.
        trace: requests by their arrival.
        seed: of how many tokens a request gets in a step.
    """
    return _served(_Device(server, times, prompt_tokens, np.random.default_rng(seed)), trace, 0)


def _served(device: _Device, trace: Sequence[Wanted], warming: int) -> Served:
    """What all but the first requests meet, which warm the server up."""
    every = [
        _Request(one.arrival, one.arrival, one.prompt_tokens, one.output_tokens) for one in trace
    ]
    device.serve(every)
    counted = every[warming:]
    begin = counted[0].arrival if warming else 0.0
    end = counted[-1].arrival if warming else max(one.done for one in every)
    ttft = np.array([one.first - one.arrival for one in counted])
    request = np.array([one.done - one.arrival for one in counted])
    tpot = (request - ttft) / np.array([max(one.output - 1.0, 1.0) for one in counted])
    finished = sum(begin <= one.done <= end for one in every)
    return Served(ttft, tpot, request, finished / (end - begin))


class _Device:
    """The device of a server, and the requests that it works on.

    Args:
        server: its limits and order of work.
        times: of the plan's steps, in one world.
        prompt_tokens: length of the prompts that `times.prompt` is of.
        rng: draws how many tokens a request gets in a step.
    """

    def __init__(
        self, server: Server, times: StepTimes, prompt_tokens: float, rng: np.random.Generator
    ) -> None:
        self.server, self.times, self.rng = server, times, rng
        self.most = int(min(server.running, times.batches[-1]))
        step, tokens = times.at(np.arange(1, self.most + 1, dtype=np.float64))
        self.step, self.tokens = step.tolist(), tokens.tolist()
        self.per_token = float(times.prompt) / max(prompt_tokens, 1.0)
        self.prefill = float(times.prefill)
        self.now = 0.0
        self.waiting: deque[_Request] = deque()
        self.running: list[_Request] = []
        self.left = np.empty(0)  # tokens that each running request still wants
        self.silent = 0  # the last so many that run have no token yet

    def serve(self, requests: list[_Request]) -> None:
        """Run until the last request is done."""
        if self.server.prefill == "elsewhere":
            self._read_elsewhere(requests)
        coming = deque(sorted(requests, key=lambda one: one.ready))
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now = max(self.now, coming[0].ready)
            while coming and coming[0].ready <= self.now:
                self.waiting.append(coming.popleft())
            reading = self._admitted()
            if reading and self.server.prefill == "chunked":
                self._read_along(reading)
                continue
            if self.server.prefill == "first":
                self._read_first(reading)
            else:
                self._join([self.waiting.popleft() for _ in reading])
            if self.running:
                self._decode(self._next_joins(coming))

    def _next_joins(self, coming: deque[_Request]) -> float:
        """From when another request could decode along if none were done, seconds."""
        if len(self.running) >= self.most:
            return math.inf
        if self.waiting:
            return self.now
        return coming[0].ready if coming else math.inf

    def _admitted(self) -> list[_Request]:
        """Waiting requests that may be read now, in order."""
        free = self.most - len(self.running)
        return [self.waiting[place] for place in range(min(free, len(self.waiting)))]

    def _read_elsewhere(self, requests: list[_Request]) -> None:
        """Prompts pass the reader that is free first; ready is what has moved its caches."""
        free = [(0.0, 0.0)] * self.server.readers  # when each reader is, and its link
        for one in requests:
            read, moved = heapq.heappop(free)
            read = max(read, one.arrival) + self.prefill + one.unread * self.per_token
            one.ready = max(moved, read) + float(self.times.transfer)
            heapq.heappush(free, (read, one.ready))
            if self.times.first_steps == 0:  # whoever reads a prompt sends the first token
                one.first = read

    def _read_first(self, reading: list[_Request]) -> None:
        """One prefill of as many prompts as it may hold, at least one where any waits."""
        if not reading:
            return
        tokens = 0.0
        joined: list[_Request] = []
        for one in reading:
            if joined and tokens + one.unread > self.server.step_tokens:
                break
            tokens += one.unread
            joined.append(self.waiting.popleft())
        self.now += self.prefill + tokens * self.per_token
        self._join(joined)

    def _read_along(self, reading: list[_Request]) -> None:
        """A step of all that decode, with chunks of prompts along."""
        count, budget = len(self.running), self.server.step_tokens
        tokens, read = 0.0, 0
        for one in reading:
            chunk = min(one.unread, budget - tokens)
            one.unread -= chunk
            tokens += chunk
            if one.unread > 0.0:
                break
            read += 1
        self.now += (self.step[count - 1] if count else self.prefill) + tokens * self.per_token
        if count:
            self._emit(np.array([self.now]))
        self._join([self.waiting.popleft() for _ in range(read)])

    def _join(self, joined: Sequence[_Request]) -> None:
        """Requests whose prompts have been read decode from now on."""
        sent = 1.0 if self.times.first_steps == 0 else 0.0  # by the prefill
        for one in joined:
            if sent and math.isnan(one.first):
                one.first = self.now
            if one.output <= sent:
                one.done = self.now
        stay = [one for one in joined if one.output > sent]
        if stay:
            self.running += stay
            self.left = np.append(self.left, [one.output - sent for one in stay])
            self.silent += 0 if sent else len(stay)

    def _decode(self, until: float) -> None:
        """Steps of all that decode, as many as end alike: until one may be done, or one arrives.

        Args:
            until: a time at which another request can join.
        """
        count = len(self.running)
        least = int(self.left.min() / math.ceil(self.tokens[count - 1]))
        clock = np.full(min(max(least, 1), _TOGETHER) + 1, self.step[count - 1])
        clock[0] = self.now
        ends = np.cumsum(clock)[1:]
        self._emit(ends[: int(np.searchsorted(ends, until)) + 1])

    def _emit(self, ends: Floats) -> None:
        """Give every request its tokens: the mean's whole part, or one more by chance.

        Args:
            ends: when each of these steps ends, seconds, [steps]; none is done before the last.
        """
        count = len(self.running)
        mean = self.tokens[count - 1]
        whole = int(mean)
        for one in self.running[count - self.silent :]:
            one.first = float(ends[0])
        self.silent = 0
        self.now = float(ends[-1])
        self.left -= whole * len(ends)
        if mean > whole:
            self.left -= (self.rng.random((len(ends), count)) < mean - whole).sum(axis=0)
        stay = self.left > 0.0
        if stay.all():
            return
        for place in np.flatnonzero(~stay).tolist():
            self.running[place].done = self.now
        self.running = list(compress(self.running, stay.tolist()))
        self.left = self.left[stay]
