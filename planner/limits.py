"""Limits: which candidates they refuse, and what to say when they refuse all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specplan.cost_models.estimate import Estimate
from specplan.ir.errors import InfeasibleError
from specplan.planner.candidates import Candidate
from specplan.planner.facts import ProblemFacts


@dataclass(frozen=True)
class Miss:
    """A limit that an estimate exceeds.

    Attributes:
        key: the limit's dotted key, or `device` for the memory of the device.
        words: what is limited.
        unit: of both numbers.
        batch: batch size at which it is exceeded most.
        reached: estimated value.
        allowed: the limit.
    """

    key: str
    words: str
    unit: str
    batch: int
    reached: float
    allowed: float

    @property
    def ratio(self) -> float:
        """How many times the limit is reached."""
        return self.reached / self.allowed

    def __str__(self) -> str:
        return (
            f"{self.key}: {self.words} is {self.reached:.4g} {self.unit} at batch {self.batch}, "
            f"the limit is {self.allowed:.4g} {self.unit}"
        )


def misses(facts: ProblemFacts, estimates: Sequence[Estimate]) -> tuple[Miss, ...]:
    """Every limit that some batch size exceeds, each at the batch size where it is worst."""
    found: dict[str, Miss] = {}
    for estimate in estimates:
        for miss in _checks(facts, estimate):
            known = found.get(miss.key)
            if miss.ratio > 1.0 and (known is None or miss.ratio > known.ratio):
                found[miss.key] = miss
    return tuple(found.values())


def _checks(facts: ProblemFacts, estimate: Estimate) -> list[Miss]:
    """What is limited, kept or not."""
    limits, batch = facts.problem.limits, estimate.batch
    memory, seconds = estimate.memory.total, "seconds"
    tpot, ttft = estimate.seconds_per_token.median, estimate.ttft.median
    checks = [Miss("device", "memory needed", "bytes", batch, memory, facts.device.memory_bytes)]
    if limits.memory is not None:
        checks.append(Miss("limits.memory", "memory needed", "bytes", batch, memory, limits.memory))
    if limits.tpot is not None:
        checks.append(Miss("limits.tpot", "time per token", seconds, batch, tpot, limits.tpot))
    if limits.ttft is not None:
        words = "time to the first token"
        checks.append(Miss("limits.ttft", words, seconds, batch, ttft, limits.ttft))
    return checks


def nothing_admissible(facts: ProblemFacts, candidates: Sequence[Candidate]) -> InfeasibleError:
    """Names the limit that stands most in the way, and the best value that was reached.

    The candidate that comes nearest to keeping all limits decides which limit is told.
    """
    priced = [candidate for candidate in candidates if candidate.priced]
    nearest = min(priced, key=lambda c: max(miss.ratio for miss in misses(facts, c.estimates)))
    tightest = max(misses(facts, nearest.estimates), key=lambda miss: miss.ratio)
    best = min(
        (
            max(
                (
                    miss
                    for e in c.estimates
                    for miss in _checks(facts, e)
                    if miss.key == tightest.key
                ),
                key=lambda miss: miss.ratio,
            )
            for c in priced
        ),
        key=lambda miss: miss.ratio,
    )
    remedy = {
        "device": "Take a device with more memory, or smaller models, batches or lengths.",
        "limits.memory": "Raise limits.memory, or take smaller models, batches or lengths.",
    }.get(tightest.key, f"Raise {tightest.key}, or take a faster device or smaller batches.")
    others = ""
    if best.ratio <= 1.0:
        others = ", but only with plans that exceed another limit"
    return InfeasibleError(
        f"no plan keeps the limits: {tightest.words} reaches {best.reached:.4g} {best.unit} at "
        f"best (batch {best.batch}{others}), the limit is {tightest.allowed:.4g} {tightest.unit}; "
        f"nearest is {nearest.method} ({nearest.words})",
        where=tightest.key,
        remedy=remedy,
    )
