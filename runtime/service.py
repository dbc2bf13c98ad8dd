"""Input and report of a server with a continuous batch."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Protocol

from specplan.runtime.generate import Completion
from specplan.runtime.requests import Request


class Timer(Protocol):
    """Seconds since a server began."""

    def now(self) -> float:
        """Seconds."""
        ...

    def wait(self, until: float) -> None:
        """Return when it is this late."""
        ...


class WallTimer:
    """Real time, from when it is made."""

    def __init__(self) -> None:
        self._begin = perf_counter()

    def now(self) -> float:
        """See `Timer.now`."""
        return perf_counter() - self._begin

    def wait(self, until: float) -> None:
        """See `Timer.wait`."""
        sleep(max(until - self.now(), 0.0))


@dataclass(frozen=True)
class Arrival:
    """A request, and when it comes.

    Attributes:
        seconds: after the server's begin.
        request: what is asked for.
    """

    seconds: float
    request: Request


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a continuous batch.

    Attributes:
        running: most requests that run together.
        step_tokens: most tokens of prompts that are read before one round, one prompt at least;
            plans that read prompts in chunks state their own bound, `most=`.
    """

    running: int = 8
    step_tokens: int = 8192


@dataclass(frozen=True)
class Served:
    """One request that a server has answered.

    Attributes:
        completion: its output.
        arrival: when it came, in seconds of the server's clock.
        admitted: when it joined the batch.
        first: when its first token was out.
        last: when its last one was.
    """

    completion: Completion
    arrival: float
    admitted: float
    first: float
    last: float

    @property
    def ttft(self) -> float:
        """Seconds from arrival to the first token."""
        return self.first - self.arrival

    @property
    def seconds(self) -> float:
        """Seconds from arrival to the last token."""
        return self.last - self.arrival

    @property
    def tpot(self) -> float:
        """Seconds per further token; 0 of a single one."""
        return (self.last - self.first) / max(len(self.completion.tokens) - 1, 1)


@dataclass(frozen=True)
class Step:
    """One round of a server, with the prompts that were read before it.

    Attributes:
        running: requests in the batch.
        joined: those among them that came with this step.
        tokens: emitted by all.
        read_seconds: of the prompts that were read before the round.
        seconds: of the round.
    """

    running: int
    joined: int
    tokens: int
    read_seconds: float
    seconds: float


@dataclass(frozen=True)
class Service:
    """What a server did.

    Attributes:
        served: one for each arrival, in their order.
        steps: in order.
        seconds: from the begin to the last token.
    """

    served: tuple[Served, ...]
    steps: tuple[Step, ...]
    seconds: float
