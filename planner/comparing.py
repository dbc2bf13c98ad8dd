"""Which candidate is better, and whether by more than the estimates can tell.

The score of a candidate is what the objective makes of its estimates, lower is better: latency
takes the mean over the batch sizes of a request's seconds per output token, prefill included;
throughput takes the seconds per output token of the device at the mean rate.

Two candidates share most errors of a device: where both are wrong by the same factor, their ratio
is right. What counts against a gain is therefore how much wider the candidate's own time is, and
the interval of its acceptance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from specplan.cost_models.estimate import Estimate
from specplan.cost_models.intervals import Interval, Seconds
from specplan.planner.candidates import Candidate

Objective = Literal["latency", "throughput"]

TIE = 0.01
"""Scores within this fraction are a tie: far below the error of any estimate."""


def score(candidate: Candidate, objective: Objective) -> float:
    """Seconds per output token at the estimates' own values; lower is better."""
    return _score(
        candidate.estimates, [e.request_seconds.median for e in candidate.estimates], objective
    )


def speedup(candidate: Candidate, plain: Candidate, objective: Objective) -> Interval:
    """How many times as fast as `plain`, with what the estimates leave open between the two."""
    base = score(plain, objective)
    pairs = list(zip(candidate.estimates, plain.estimates, strict=True))
    slow = _score(candidate.estimates, [_bounds(e, p)[1] for e, p in pairs], objective)
    fast = _score(candidate.estimates, [_bounds(e, p)[0] for e, p in pairs], objective)
    mean = base / score(candidate, objective)
    return Interval(mean, min(mean, base / slow), max(mean, base / fast))


def choose(
    candidates: Iterable[Candidate], plain: Candidate, objective: Objective
) -> Candidate | None:
    """The best admissible candidate; ties go to the simpler plan.

    A candidate that drafts must beat plain decoding by more than its own interval, unless plain
    decoding is itself refused by a limit. Among those that do, scores within 1 % of the best
    are ties.
    """
    field = [candidate for candidate in candidates if candidate.admissible]
    if plain.admissible:
        field = [c for c in field if c is plain or speedup(c, plain, objective).low > 1.0]
    if not field:
        return None
    best = min(score(candidate, objective) for candidate in field)
    tied = [c for c in field if score(c, objective) <= best * (1.0 + TIE)]
    return min(tied, key=lambda c: (c.simplicity, score(c, objective), c.words))


def best_by_score(candidates: Iterable[Candidate], objective: Objective) -> Candidate | None:
    """The candidate of the lowest score among those with a price, ties to the simpler."""
    priced = [candidate for candidate in candidates if candidate.priced]
    return min(priced, key=lambda c: (score(c, objective), c.simplicity, c.words), default=None)


def _score(
    estimates: Sequence[Estimate], request_seconds: Sequence[float], objective: Objective
) -> float:
    per_token = [
        seconds / estimate.output_tokens
        for estimate, seconds in zip(estimates, request_seconds, strict=True)
    ]
    if objective == "latency":
        return sum(per_token) / len(per_token)
    rates = [e.batch / seconds for e, seconds in zip(estimates, per_token, strict=True)]
    return len(rates) / sum(rates)


def _bounds(estimate: Estimate, plain: Estimate) -> tuple[float, float]:
    """Least and most seconds of a request, errors shared with `plain` left out."""
    prefill = _own_bounds(estimate.prefill, plain.prefill)
    step = _own_bounds(estimate.seconds_per_round, plain.seconds_per_round)
    rounds = estimate.rounds
    return prefill[0] + step[0] * rounds.low, prefill[1] + step[1] * rounds.high


def _own_bounds(seconds: Seconds, shared: Seconds) -> tuple[float, float]:
    """The bounds of a time, its relative widths lessened by those of a time of the same device."""
    if seconds.median <= 0.0:
        return seconds.low, seconds.high
    below = seconds.low / seconds.median
    above = seconds.high / seconds.median
    if shared.median > 0.0:
        below = min(1.0, below / max(shared.low / shared.median, 1e-9))
        above = max(1.0, above / (shared.high / shared.median))
    return seconds.median * below, seconds.median * above
