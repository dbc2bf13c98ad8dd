"""Limits: which candidates they refuse, and what to say when they refuse all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.intervals import Interval, Seconds
from specplan.cost_models.memory.plan_memory import PlanMemory
from specplan.cost_models.memory.remedies import Need, Remedy, remedies
from specplan.ir.errors import InfeasibleError
from specplan.ir.plan import CacheState, Plan
from specplan.planner.explain.numbers import about, bytes_words, interval_data, seconds_words
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.candidates import Candidate, judged
from specplan.planner.search.objectives import Load
from specplan.planner.serving.capacity import serve, times_of

_MEMORY = "memory needed"
WORDS = {"bytes": bytes_words, "seconds": seconds_words}
"""How an amount is written, by its unit."""


@dataclass(frozen=True)
class Miss:
    """A limit that an estimate exceeds.

    Attributes:
        key: the limit's dotted key, or `device` for the memory of the device.
        words: what is limited.
        unit: of both numbers.
        batch: batch size at which it is exceeded most.
        reached: estimated value, with its interval.
        allowed: the limit.
        largest: of memory, the part that takes most, in words; "" for other limits.
    """

    key: str
    words: str
    unit: str
    batch: int
    reached: Interval
    allowed: float
    largest: str = ""

    @property
    def ratio(self) -> float:
        """How many times the limit is reached."""
        return self.reached.mean / self.allowed

    @property
    def reached_text(self) -> str:
        """The value with its interval, in words."""
        return about(interval_data(self.reached), WORDS[self.unit])

    @property
    def allowed_text(self) -> str:
        """The limit, in words."""
        return WORDS[self.unit](self.allowed)

    def __str__(self) -> str:
        return (
            f"{self.key}: {self.words} is {self.reached_text} at batch {self.batch}, "
            f"the limit is {self.allowed_text}{self.largest}"
        )


def unsupported(facts: ProblemFacts, plan: Plan) -> str | None:
    """The first thing in a well-typed plan that the backend cannot run, and how many more.

    None where it runs all of it, and where no backend is to run the plan.
    """
    for state in plan.states:
        if isinstance(state, CacheState) and state.rollback and (state.view or state.policy):
            return (
                f"@{state.name} holds a part of the text, and the recurrent state of "
                f"{state.model} is of all of it"
            )
    if facts.capabilities is None:
        return None
    refusals = facts.capabilities.refusals(plan)
    if not refusals:
        return None
    return refusals[0].words + (f", and {len(refusals) - 1} more" if len(refusals) > 1 else "")


def misses(facts: ProblemFacts, estimate: Estimate) -> tuple[Miss, ...]:
    """Every limit that some cell of the workload exceeds, each at the cell where it is worst.

    At a load the plan is refused only where no number of requests in flight keeps all limits.
    """
    load = facts.objective
    if isinstance(load, Load) and serve(load, estimate, times_of(estimate)).admissible:
        return ()
    return tuple(miss for miss in _worst(facts, estimate) if miss.ratio > 1.0)


def with_price(facts: ProblemFacts, candidate: Candidate, price: Estimate) -> Candidate:
    """The candidate at that price, refused where it misses a limit or does not run."""
    cannot = candidate.unsupported
    reasons = [*([cannot] if cannot else []), *map(str, misses(facts, price))]
    return replace(candidate, estimate=price, refusal="; ".join(reasons) or None)


def keeps_limits(facts: ProblemFacts, estimate: Estimate) -> NDArray[np.bool_]:
    """In which cells of the workload all limits are kept, [cells]."""
    within = [reached.mean <= allowed for _, _, _, reached, allowed in _limited(facts, estimate)]
    cells = np.broadcast_arrays(estimate.batch, *within)
    in_all: NDArray[np.bool_] = np.logical_and.reduce(cells[1:])
    return in_all


def _worst(facts: ProblemFacts, estimate: Estimate) -> Iterator[Miss]:
    """What is limited, at its worst cell, kept or not."""
    cells = _counting(facts, estimate)
    for key, words, unit, reached, allowed in _limited(facts, estimate):
        mean, low, high, batches = np.broadcast_arrays(
            reached.mean, reached.low, reached.high, np.atleast_1d(estimate.batch)
        )
        worst = int(cells[np.argmax(mean[cells])])
        value = Interval(*(float(part.flat[worst]) for part in (mean, low, high)))
        largest = _largest(estimate.memory, mean.shape, worst) if words == _MEMORY else ""
        yield Miss(key, words, unit, int(batches.flat[worst]), value, allowed, largest)


def _counting(facts: ProblemFacts, estimate: Estimate) -> NDArray[np.int64]:
    """The cells in which limits must be kept: all of them.

    At a load, which need not fill every batch size, for each length of prompts the cell that comes
    nearest to keeping them.
    """
    batch = np.atleast_1d(estimate.batch)
    if not isinstance(facts.objective, Load):
        return np.arange(len(batch))
    prompts = np.broadcast_to(estimate.prompt_tokens, batch.shape)
    ratios = np.zeros(batch.shape)
    for *_, reached, allowed in _limited(facts, estimate):
        ratios = np.maximum(ratios, reached.mean / allowed)
    of_length = (np.flatnonzero(prompts == length) for length in np.unique(prompts))
    return np.array([cells[np.argmin(ratios[cells])] for cells in of_length])


def _largest(memory: PlanMemory, cells: tuple[int, ...], cell: int) -> str:
    """The largest part in one cell, in words."""
    sizes = {
        part.name: float(np.broadcast_to(part.bytes, cells).flat[cell]) for part in memory.parts
    }
    name = max(sizes, key=lambda part: sizes[part])
    return f"; its largest part: {name}, {bytes_words(sizes[name])}"


def _limited(
    facts: ProblemFacts, estimate: Estimate
) -> Iterator[tuple[str, str, str, Interval, float]]:
    """Key, words and unit of each limit, what is reached in each cell, and what is allowed."""
    limits = facts.problem.limits
    memory = estimate.memory.interval
    yield "device", _MEMORY, "bytes", memory, facts.device.memory_bytes
    if limits.memory is not None:
        yield "limits.memory", _MEMORY, "bytes", memory, limits.memory
    if limits.tpot is not None:
        tpot = _interval(estimate.seconds_per_token)
        yield "limits.tpot", "time per token", "seconds", tpot, limits.tpot
    if limits.ttft is not None:
        ttft = _interval(estimate.ttft)
        yield "limits.ttft", "time to the first token", "seconds", ttft, limits.ttft
    if limits.request_latency is not None:
        request = _interval(estimate.request_seconds)
        key, most = "limits.request_latency", limits.request_latency
        yield key, "time of a request", "seconds", request, most


def _interval(seconds: Seconds) -> Interval:
    return Interval(seconds.median, seconds.low, seconds.high)


def nothing_admissible(facts: ProblemFacts, candidates: Sequence[Candidate]) -> InfeasibleError:
    """Names the limit that stands most in the way, and the best value that was reached.

    The candidate that comes nearest to keeping all limits decides which limit is named.
    """
    reached = [
        (candidate, list(_worst(facts, candidate.estimate)))
        for candidate in candidates
        if candidate.estimate is not None and candidate.unsupported is None
    ]
    nearest, checks = min(reached, key=lambda checked: max(miss.ratio for miss in checked[1]))
    tightest = max(checks, key=lambda miss: miss.ratio)
    same = [miss for _, checked in reached for miss in checked if miss.key == tightest.key]
    best = min(same, key=lambda miss: miss.ratio)
    remedy = f"Raise {tightest.key}, or take a faster device or smaller batches."
    if tightest.words == _MEMORY:
        remedy = _memory_remedy(facts, nearest, tightest)
    others = ""
    if best.ratio <= 1.0:
        others = ", but only with plans that exceed another limit"
    devices = facts.capabilities.device_words if facts.capabilities is not None else ""
    return InfeasibleError(
        f"no plan keeps the limits: {tightest.words} reaches {best.reached_text} at "
        f"best (batch {best.batch}{others}), the limit is {tightest.allowed_text}"
        f"{tightest.largest}; nearest is {_short_name(nearest)}"
        + (f"; {devices}" if devices else ""),
        where=tightest.key,
        remedy=remedy,
    )


@dataclass(frozen=True)
class Unfit:
    """A plan that does not fit at one operating point.

    Attributes:
        needed: bytes.
        allowed: bytes that a plan may take.
        ways: what would make it fit, those that suffice alone first.
    """

    needed: float
    allowed: float
    ways: tuple[Remedy, ...]


def unfit(facts: ProblemFacts, plan: Plan, batch: int, prompt_tokens: int) -> Unfit:
    """By how much a plan does not fit at one operating point of the problem."""
    text = prompt_tokens + max(request.output_tokens for request in facts.requests)
    need = Need(plan, facts.shapes, batch, text, prompt_tokens, facts.runtime)
    limited = facts.memory_bytes < facts.device.memory_bytes
    return Unfit(
        float(need.memory.total),
        facts.memory_bytes,
        _ways(facts, need, facts.memory_bytes, limited),
    )


def _ways(facts: ProblemFacts, need: Need, allowed: float, limited: bool) -> tuple[Remedy, ...]:
    """What would make it fit; further devices only where the device is what limits."""
    linked = isinstance(facts.device, AnalyticDevice) and facts.device.link_bandwidth > 0.0
    shares = facts.capabilities is None or facts.capabilities.shares
    return remedies(need, allowed, linked and shares and not limited)


def _short_name(candidate: Candidate) -> str:
    """A plan by its method and the draft tokens of a step."""
    tree = judged(candidate)
    if tree is None or not tree.nodes:
        return "no speculation"
    return f"{candidate.method}, {tree.nodes} draft tokens per step"


def _memory_remedy(facts: ProblemFacts, nearest: Candidate, miss: Miss) -> str:
    """The ways in which the candidate that comes nearest would fit, the cheapest first."""
    assert nearest.plan is not None, "it is priced"
    prompt = max(request.prompt_tokens for request in facts.requests)
    need = Need(nearest.plan, facts.shapes, miss.batch, facts.longest_text, prompt, facts.runtime)
    ways = _ways(facts, need, miss.allowed, miss.key == "limits.memory")
    alone = [str(way) for way in ways if way.enough]
    if alone:
        return f"Cheapest: {alone[0]}. Or: {'; '.join([*alone[1:], _elsewhere(miss)])}."
    together = "; ".join(map(str, ways))
    return f"None of these suffices alone: {together}. Or: {_elsewhere(miss)}."


def _elsewhere(miss: Miss) -> str:
    if miss.key == "limits.memory":
        return "a higher limits.memory, or a smaller model"
    return "a device with more memory, or a smaller model"
