"""Rounds that change with the place in an output: which runs where, and what they make together.

A schedule may choose by the tokens that a request has emitted. An output is then cut into
segments, each of one round, which is priced at the mean context of its segment. A decode is the
sum over them.

What is taken for granted: a batch changes its round by the most tokens that one of its requests has
emitted, and here its requests reach a bound together, after the rounds that the slowest needs. A
guard that also reads the batch or the context sees the load of the whole request, as in a schedule
by these alone. What the last round before a bound emits beyond it is known in the mean, rounds
being alike: it shortens the next segment. Where a replay knows in which order rounds ran, what they
accept is that of the segment's own places in the output; otherwise all places are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np

from specplan.cost_models.acceptance.evidence.base import Drafting, Evidence, read_drafting
from specplan.cost_models.cells import each
from specplan.cost_models.cost import Quantity
from specplan.cost_models.intervals import Interval
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import (
    RoundPrice,
    Unpriced,
    mean_round,
    price_round,
)
from specplan.ir.formula import formula_names
from specplan.ir.plan import Plan
from specplan.ir.schedule import select_round


@dataclass(frozen=True, slots=True)
class OutputSegment:
    """Tokens of an output that one round emits.

    Attributes:
        round: its name.
        start: tokens emitted before.
        stop: tokens emitted at its end.
        share: of the seconds of decoding, once priced.
    """

    round: str
    start: int
    stop: int
    share: Quantity = 1.0


Drafted: TypeAlias = Sequence[tuple[OutputSegment, Drafting]]
"""The segments of an output with what their rounds draft."""


@dataclass(frozen=True, slots=True)
class Decode:
    """The price of decoding an output.

    Attributes:
        round: the mean one.
        tokens_per_round: emitted by one request, in the mean of its rounds.
        rounds: of all segments, until the slowest request of the batch is done.
        first_round: time of the first round in mean ones.
        segments: with their shares.
    """

    round: RoundPrice
    tokens_per_round: Interval
    rounds: Interval
    first_round: Quantity
    segments: tuple[OutputSegment, ...]


def read_segments(
    plan: Plan, batch: Quantity, context: Quantity, output_tokens: int
) -> tuple[OutputSegment, ...]:
    """The segments of a request's output; one where the schedule does not look at what is emitted.

    Args:
        plan: a verified plan.
        batch: requests that run together, a number or an array [cells].
        context: mean tokens of text per request, likewise.
        output_tokens: of a request.

    Raises:
        ValueError: some cells run other rounds than others.
    """
    if plan.schedule is None:
        return (OutputSegment(plan.rounds[0].name, 0, output_tokens),)
    loads = {(int(b), round(c)) for b, c in np.broadcast(batch, context)}
    if _guarded(plan) <= {"emitted"}:
        loads = {min(loads)}
    ways = {_segments(plan, *load, output_tokens) for load in loads}
    if len(ways) > 1:
        names = sorted({segment.round for segments in ways for segment in segments})
        raise ValueError(f"loads that run different rounds must be priced separately: {names}")
    return ways.pop()


@lru_cache(maxsize=1024)
def _segments(
    plan: Plan, batch: int, context: int, output_tokens: int
) -> tuple[OutputSegment, ...]:
    current = select_round(plan, batch=batch, context=context)
    start, segments = 0, []
    for emitted in range(1, output_tokens if "emitted" in _guarded(plan) else 0):
        chosen = select_round(plan, batch=batch, context=context, emitted=emitted, current=current)
        if chosen != current:
            segments.append(OutputSegment(current, start, emitted))
            current, start = chosen, emitted
    return (*segments, OutputSegment(current, start, output_tokens))


@lru_cache(maxsize=1024)
def _guarded(plan: Plan) -> frozenset[str]:
    """What the guards of a plan's schedule look at."""
    guards = () if plan.schedule is None else plan.schedule.guards
    return frozenset[str]().union(*(formula_names(str(guard.formula)) for guard in guards))


def read_drafted(
    plan: Plan, segments: Sequence[OutputSegment], evidence: Evidence | None
) -> Drafted | Unpriced:
    """What the rounds of segments draft, all by one drafter; see `read_drafting`."""
    drafted = []
    for segment in segments:
        drafting = read_drafting(plan, plan.round(segment.round), evidence)
        if isinstance(drafting, Unpriced):
            return drafting
        drafted.append((segment, drafting))
    return drafted


def price_decode(
    drafted: Drafted, pricer_of: Callable[[OutputSegment], RoundPricer], batch: Quantity
) -> Decode | Unpriced:
    """Decoding of an output, as the sum over its segments.

    The mean round weighs each by how often it runs, so that its time times all rounds is the sum.

    Args:
        drafted: the segments in order, at least one.
        pricer_of: prices rounds at the mean context of a segment.
        batch: requests that run together, a number or an array [cells].
    """
    prices: list[RoundPrice] = []
    for segment, drafting in drafted:
        price = price_round(drafting.demands, pricer_of(segment), drafting.lag(batch))
        if isinstance(price, Unpriced):
            return price
        prices.append(price)
    counts = each(batch, partial(segment_rounds, drafted))
    segments = tuple(segment for segment, _ in drafted)
    if len(prices) == 1:
        tokens = drafted[0][1].tokens_per_round
        return Decode(prices[0], tokens, counts[0], 1.0, segments)
    rounds = _sum(counts)
    weights = [count.mean / rounds.mean for count in counts]
    mean = mean_round(prices, weights)
    shares = [
        weight * price.seconds.median / mean.seconds.median
        for weight, price in zip(weights, prices, strict=True)
    ]
    return Decode(
        round=mean,
        tokens_per_round=_tokens_per_round(drafted),
        rounds=rounds,
        first_round=prices[0].seconds.median / mean.seconds.median,
        segments=tuple(replace(s, share=x) for s, x in zip(segments, shares, strict=True)),
    )


def _tokens_per_round(drafted: Drafted) -> Interval:
    """Of one request alone; its last round counts for all that it would have emitted."""
    last, drafting = drafted[-1]
    rounds = _sum(segment_rounds(drafted, 1))
    return rounds.inverse * (last.stop + drafting.overshoot(last.stop))


def segment_rounds(drafted: Drafted, batch: int) -> tuple[Interval, ...]:
    """Rounds of each segment, until the slowest request of a batch is at its end.

    Of a round that drafts, those until the end of its segment less those until its beginning, and
    what its own rounds would have emitted beyond the beginning less what those before it did.
    """
    counts: list[Interval] = []
    before: Drafting | None = None
    for segment, drafting in drafted:
        count = drafting.rounds(segment.stop, batch)
        if before is not None:
            done = drafting.rounds(segment.start, batch)
            ahead = before.overshoot(segment.start) - drafting.overshoot(segment.start)
            count = _less(count, done, ahead / drafting.tokens_per_round.mean)
        counts.append(count)
        before = drafting
    return tuple(counts)


def _less(count: Interval, done: Interval, ahead: float) -> Interval:
    """What is left of rounds when some are done, and others not needed; never below zero.

    Both counts err alike: their bounds are those of one state of the world.
    """
    mean, low, high = (
        max(whole - part - ahead, 0.0)
        for whole, part in ((count.mean, done.mean), (count.low, done.low), (count.high, done.high))
    )
    return Interval(mean, min(mean, low), max(mean, high))


def _sum(parts: Sequence[Interval]) -> Interval:
    """All parts err together: their bounds add."""
    return Interval(
        sum(part.mean for part in parts),
        sum(part.low for part in parts),
        sum(part.high for part in parts),
    )


def assumed_of(plan: Plan, drafted: Drafted, batch: Quantity) -> tuple[str, ...]:
    """What a price by segments takes for granted, in words."""
    every = [one.evidence for _, one in drafted if one.evidence is not None]
    first, several = drafted[0][0], len(drafted) > 1
    ends = ", ".join(f"{part.round!r} up to {part.stop}" for part, _ in drafted)
    words = (
        (f"round {first.round!r} runs throughout", plan.schedule is not None and not several),
        (f"requests reach the tokens together at which rounds change: {ends}", several),
        (
            "requests of a batch are alike",
            any(one.positions == 0 for one in every) and np.max(batch) > 1,
        ),
    )
    return tuple(word for word, holds in words if holds)
