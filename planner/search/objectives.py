"""What counts as better: latency, TPOT, throughput, or the requests served at a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Load:
    """The objective `goodput`: requests that arrive, and the limits within which they count.

    Attributes:
        request_rate: requests that arrive per second.
        memory: bytes that a plan may take.
        request_latency: most seconds of a request; None for no limit.
        ttft: most seconds until its first token; None for no limit.
        tpot: most seconds per output token; None for no limit.
    """

    request_rate: float
    memory: float
    request_latency: float | None = None
    ttft: float | None = None
    tpot: float | None = None


Objective = Literal["latency", "tpot", "throughput"] | Load
