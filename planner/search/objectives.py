"""What counts as better: latency, TPOT, throughput, or the requests served at a load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from specplan.cost_models.serving.server import Server


@dataclass(frozen=True)
class Load:
    """The objective `goodput`: requests that arrive, and the limits within which they count.

    Attributes:
        request_rate: requests that arrive per second.
        memory: bytes that a plan may take.
        request_latency: most seconds of a request; None for no limit.
        ttft: most seconds until its first token; None for no limit.
        tpot: most seconds per output token; None for no limit.
        server: how requests are batched.
        burstiness: squared coefficient of variation of the times between arrivals.
    """

    request_rate: float
    memory: float
    request_latency: float | None = None
    ttft: float | None = None
    tpot: float | None = None
    server: Server = field(default_factory=lambda: Server("first"))
    burstiness: float = 1.0


Objective = Literal["latency", "tpot", "throughput"] | Load
