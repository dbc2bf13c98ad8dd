"""The loop of a server: requests join and leave a batch between rounds.

Output does not depend on it: every request gets the tokens that it gets alone, since caches, texts
and uniform numbers are its own. A plan whose passes bound the tokens of all requests (`most=`)
reads prompts in chunks along with the requests that decode; any other reads the prompts of new
requests, whole, before the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from specplan.ir.errors import MissingCapabilityError
from specplan.ir.schedule import select_round
from specplan.ir.types.residency import reads_in_chunks
from specplan.runtime.executable import ContinuousSession, Executable
from specplan.runtime.generate import (
    OnTokens,
    Row,
    check_stop_strings,
    emits_nothing,
    hand_on,
)
from specplan.runtime.service import Arrival, BatchLimits, Served, Service, Step, Timer, WallTimer
from specplan.runtime.tokenizer import Tokenizer


@dataclass(eq=False)
class Running:
    """A request in the batch."""

    row: Row
    arrival: float
    admitted: float
    times: list[float] = field(default_factory=list)

    def served(self, now: float) -> Served:
        """What it met."""
        times = self.times or [now]
        return Served(self.row.completion(), self.arrival, self.admitted, times[0], times[-1])


def serve(
    executable: Executable,
    arrivals: Sequence[Arrival],
    limits: BatchLimits | None = None,
    *,
    clock: Timer | None = None,
    tokenizer: Tokenizer | None = None,
    on_tokens: OnTokens | None = None,
) -> Service:
    """Answer requests as they come, in one batch that they join and leave.

    Args:
        executable: a compiled plan whose sessions are continuous.
        arrivals: the requests.
        limits: of the batch.
        clock: real time when None.
        tokenizer: needed for text and stop strings.
        on_tokens: called as tokens come, with the place of the request in `arrivals`.

    Raises:
        UsageError: stop strings without a tokenizer, or a request does not fit the models.
        MissingCapabilityError: requests cannot join a batch of this plan between rounds.
        SpecplanError: the plan's rounds stopped emitting.
    """
    check_stop_strings([arrival.request for arrival in arrivals], tokenizer)
    server = Server(executable, limits or BatchLimits(), clock or WallTimer(), on_tokens)
    lengths = [len(a.request.prompt_tokens) + a.request.max_new_tokens for a in arrivals]
    server.capacity = max(lengths, default=0)
    order = sorted(range(len(arrivals)), key=lambda index: arrivals[index].seconds)
    rows = ((arrivals[i].seconds, Row(i, arrivals[i].request, tokenizer)) for i in order)
    try:
        server.run(deque(rows))
    finally:
        server.release()
    served = [server.served[index] for index in range(len(arrivals))]
    return Service(tuple(served), tuple(server.steps), server.clock.now())


class Server:
    """The batch of a server, and who waits for it.

    Attributes:
        capacity: tokens of the longest text.
        shared: prompt tokens that were copied from other requests instead of run.
        batch: requests by their places in the session; those that are done leave before a round.
        waiting: requests that have come, with their times of arrival.
    """

    capacity = 0
    shared = 0

    def __init__(
        self,
        executable: Executable,
        limits: BatchLimits,
        clock: Timer,
        on_tokens: OnTokens | None,
    ) -> None:
        self.executable, self.limits, self.clock = executable, limits, clock
        self.on_tokens = on_tokens
        self.session: ContinuousSession | None = None
        self.batch: list[Running] = []
        self.waiting: deque[tuple[float, Row]] = deque()
        self.served: dict[int, Served] = {}
        self.steps: list[Step] = []
        self._chunks = reads_in_chunks(executable.plan)
        self._round: str | None = None
        self._idle = 0

    def run(self, coming: deque[tuple[float, Row]]) -> None:
        """Serve until the last request is done; `coming` are all, by their times."""
        while coming or self.waiting or self._running:
            if not self.waiting and not self._running:
                self.clock.wait(coming[0][0])
            now = self.clock.now()
            while coming and coming[0][0] <= now:
                self.waiting.append(coming.popleft())
            joined = self._admit(now)
            begun = self.clock.now()
            if self._running:
                self._step(joined, begun - now, begun)

    def release(self) -> None:
        """Free the session."""
        if self.session is not None:
            self.session.release()

    @property
    def _running(self) -> list[tuple[int, Running]]:
        """Requests that are not done, and their places."""
        if self.session is None:
            return []
        done = self.session.done
        return [(place, one) for place, one in enumerate(self.batch) if not done[place]]

    def _admit(self, now: float) -> int:
        """Let requests that are done leave and others join, and read what is read ahead."""
        running = {place for place, _ in self._running}
        leaving = [place for place in range(len(self.batch)) if place not in running]
        joining = self._next(self.limits.running - len(running))
        if not joining and not (leaving and running):
            return 0  # a batch is never empty: the last one stays until others come
        requests = [row.request for _, row in joining]
        if self.session is None:
            session = self.executable.start(requests, self.capacity)
            if not isinstance(session, ContinuousSession):
                session.release()
                raise MissingCapabilityError(
                    "requests cannot join a batch between rounds",
                    where=f"plan {self.executable.plan.name}",
                    remedy="Compile the plan for the backend eager.",
                )
            self.session = session
        else:
            self.shared += self.session.exchange(leaving, requests)
        self.batch = [one for place, one in enumerate(self.batch) if place in running]
        self.batch += [Running(row, arrival, now) for arrival, row in joining]
        if joining:
            self.session.prefill()
            for place, one in enumerate(self.batch):
                if one.row.request.max_new_tokens == 0 and self.session.done[place]:
                    self._close(one)
        return len(joining)

    def _next(self, free: int) -> list[tuple[float, Row]]:
        """Waiting requests that join now."""
        joining: list[tuple[float, Row]] = []
        tokens = 0
        while self.waiting and len(joining) < free:
            tokens += len(self.waiting[0][1].request.prompt_tokens)
            if joining and tokens > self.limits.step_tokens and not self._chunks:
                break
            joining.append(self.waiting.popleft())
        return joining

    def _step(self, joined: int, read: float, begun: float) -> None:
        """Run a round of all that are not done."""
        assert self.session is not None
        active, lengths = self._running, self.session.lengths
        self._round = select_round(
            self.executable.plan,
            batch=len(active),
            context=max(lengths[place] for place, _ in active),
            emitted=max(len(one.row.tokens) for _, one in active),
            current=self._round,
        )
        before = [len(one.row.tokens) for _, one in active]
        rows = [(place, one.row) for place, one in active]
        emitted = hand_on(self.session, rows, self.session.step(self._round), self.on_tokens)
        now = self.clock.now()
        self.steps.append(Step(len(active), joined, emitted, read, now - begun))
        for tokens, (_, one) in zip(before, active, strict=True):
            if len(one.row.tokens) > tokens:
                one.times.append(now)
            if one.row.reason is not None:
                self._close(one)
        self._idle = 0 if emitted else self._idle + 1
        if self._idle > self.capacity + 16:
            raise emits_nothing(self.executable.plan, self._round, self._idle)

    def _close(self, one: Running) -> None:
        """A request is done."""
        if one.row.reason is None:
            one.row.close(self.on_tokens)
        self.served[one.row.index] = one.served(self.clock.now())
