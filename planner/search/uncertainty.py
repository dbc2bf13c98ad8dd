"""Uncertainty of a choice: probability of being best, expected regret, and what to measure next.

Every candidate's time is recomputed under draws of what the estimates leave open, the same state of
the world for all candidates of a draw:

* device: per model (and for all other ops together) one factor that every pass of it shares, and
  one for each width of its passes; their half widths are those of the estimates less what all times
  of the device have in common, split so that the shared part carries `SHARED` of the variance;
* acceptance: per drafter, the draws of its profile (`AcceptanceProfile.token_draws`).

The value of measuring one of them is the expected value of partial perfect information (Raiffa and
Schlaifer 1961): how much regret is saved, in the mean, by choosing after it is known. It is
computed with the other sources at their centre.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.cost import maximum
from specplan.cost_models.intervals import Interval
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import geometric_mean, more_served, score, speedup
from specplan.planner.search.objectives import Load, Objective
from specplan.planner.search.scenarios import DRAWS, Drawn, Draws, Floats
from specplan.planner.serving.capacity import Served, Times, serve

NEAR = 1.25
"""Candidates whose time is within this factor of the best may turn out to be the best."""


@dataclass(frozen=True)
class Measurement:
    """Something that is not known well.

    Attributes:
        kind: `device` or `acceptance`.
        name: of the model, "ops" for all that is no forward, or the drafter.
        regret_saved: by choosing after it is known, as a fraction of the time.
    """

    kind: str
    name: str
    regret_saved: float


@dataclass(frozen=True)
class Confidence:
    """How sure a choice is.

    Attributes:
        probability_best: that no other candidate is faster than the chosen one.
        expected_regret: mean loss against the best of each state of the world, as a fraction.
        rivals: other candidates with the probability that they are the best, likeliest first.
        measurements: what is not known well, most regret saved first.
    """

    probability_best: float
    expected_regret: float
    rivals: tuple[tuple[Candidate, float], ...]
    measurements: tuple[Measurement, ...]


def confidence(
    chosen: Candidate,
    candidates: Sequence[Candidate],
    profiles: Mapping[Drafter, AcceptanceProfile],
    objective: Objective,
) -> Confidence:
    """How sure it is that `chosen` is the best of the admissible candidates.

    Args:
        chosen: an admissible candidate.
        candidates: all of them.
        profiles: by drafter.
        objective: what the time of a candidate is.
    """
    field = _field(chosen, candidates, objective)
    draws = Draws(profiles)
    worlds = _Worlds(draws)
    times = np.stack([worlds.times(candidate, objective) for candidate in field], axis=1)
    best = np.bincount(times.argmin(axis=1), minlength=len(field)) / len(times)
    rivals = sorted(zip(field[1:], best[1:].tolist(), strict=True), key=lambda pair: -pair[1])
    return Confidence(
        probability_best=float(best[0]),
        expected_regret=_regret(times),
        rivals=tuple(pair for pair in rivals if pair[1] > 0.0),
        measurements=_measurements(field, draws, objective),
    )


def speed_over(
    one: Candidate,
    other: Candidate,
    profiles: Mapping[Drafter, AcceptanceProfile],
    objective: Objective,
) -> Interval:
    """How many times as fast a candidate is as another, every draw holding for both of them.

    At a load that one of the two does not serve as a whole, how many times as many requests it
    serves within the limits.

    Args:
        one: with a price, as `other`.
        other: what it is compared with.
        profiles: by drafter.
        objective: what the time of a candidate is.

    Returns:
        The ratio by the estimates' centres, between the 5th and the 95th percentile of the draws.
    """
    worlds = _Worlds(Draws(profiles))
    if isinstance(objective, Load):
        drawn = more_served(*(worlds.served(candidate, objective) for candidate in (one, other)))
    else:
        drawn = worlds.times(other, objective) / worlds.times(one, objective)
    low, high = np.quantile(drawn, (0.05, 0.95)).tolist()
    mean = speedup(one, other, objective).mean
    return Interval(mean, min(mean, low), max(mean, high))


def request_draws(
    candidates: Sequence[Candidate], profiles: Mapping[Drafter, AcceptanceProfile]
) -> Floats:
    """Seconds of a request per output token under the draws, [draws, candidates, cells].

    The same draw is the same state of the world for all candidates, in every call; what all times
    of the device have in common is left out.

    Args:
        candidates: with a price each.
        profiles: by drafter.
    """
    worlds = _Worlds(Draws(profiles))
    return np.stack([worlds.per_token(candidate) for candidate in candidates], axis=1)


def _field(
    chosen: Candidate, candidates: Sequence[Candidate], objective: Objective
) -> list[Candidate]:
    """The chosen one first, then all that may turn out to be better."""
    near = score(chosen, objective) * NEAR
    others = [c for c in candidates if c.admissible and c is not chosen]
    return [chosen, *(c for c in others if score(c, objective) <= near)]


def _regret(times: Floats) -> float:
    return float((times[:, 0] - times.min(axis=1)).mean() / times[:, 0].mean())


def _measurements(
    field: Sequence[Candidate], draws: Draws, objective: Objective
) -> tuple[Measurement, ...]:
    measurements = []
    for kind, name in sorted({source for c in field for source in _sources(c)}):
        alone = _Worlds(draws, only=(kind, name))
        times = np.stack([alone.times(candidate, objective) for candidate in field], axis=1)
        saved = (times.mean(axis=0).min() - times.min(axis=1).mean()) / times[:, 0].mean()
        measurements.append(Measurement(kind, name, float(max(saved, 0.0))))
    return tuple(sorted(measurements, key=lambda measurement: -measurement.regret_saved))


def _sources(candidate: Candidate) -> set[tuple[str, str]]:
    inputs = set()
    for part, _ in candidate.parts:
        assert part.estimate is not None, "only prices are compared"
        inputs |= {("device", op.model or "ops") for op in part.estimate.breakdown}
        if part.drafter is not None:
            inputs.add(("acceptance", str(part.drafter)))
    return inputs


class _Worlds:
    """What candidates take under each draw; `only` one source varies when it is given."""

    def __init__(self, draws: Draws, only: tuple[str, str] | None = None) -> None:
        self._draws = draws
        self._only = only
        self._known: dict[tuple[int, str], Floats] = {}

    def times(self, candidate: Candidate, objective: Objective) -> Floats:
        """Its score under each draw, [draws]: seconds per output token, or of a request."""
        whole = candidate.estimate
        assert whole is not None, "only prices are compared"
        if isinstance(objective, Load):
            scores = self.served(candidate, objective).score
        else:
            per_token = self._cells(candidate, "request") / whole.output_tokens
            if objective == "throughput":
                scores = 1.0 / (whole.batch / per_token).mean(axis=1)
            else:
                tpot = objective == "tpot"
                scores = geometric_mean(self._cells(candidate, "tpot") if tpot else per_token)
        return np.broadcast_to(scores, DRAWS)

    def served(self, candidate: Candidate, load: Load) -> Served:
        """What it serves of a load under each draw, [draws]."""
        assert candidate.estimate is not None, "only prices are compared"
        times = Times(*(self._cells(candidate, name) for name in ("request", "ttft", "tpot")))
        return serve(load, candidate.estimate, times.each(_under_all_draws))

    def per_token(self, candidate: Candidate) -> Floats:
        """Seconds of a request per output token, [draws, cells]."""
        assert candidate.estimate is not None, "only prices are compared"
        request = self._cells(candidate, "request")
        return _under_all_draws(request / candidate.estimate.output_tokens)

    def _cells(self, candidate: Candidate, name: str) -> Floats:
        """One of its `Times`, in each cell that of the round that runs there, [draws, cells].

        One row stands for all draws where none makes a difference.
        """
        if not candidate.by_cell:
            return self._time(candidate, name)
        times = np.empty((DRAWS, sum(len(cells) for _, cells in candidate.parts)))
        for part, cells in candidate.parts:
            times[:, cells] = self._time(part, name)[:, cells]
        return times

    def _time(self, part: Candidate, name: str) -> Floats:
        """Of one round, in all cells, [draws, cells], or one row for all draws."""
        key = id(part), name
        if key not in self._known:
            self._known[key] = self._new_time(part, name)
        return self._known[key]

    def _new_time(self, part: Candidate, name: str) -> Floats:
        estimate, drawn = part.estimate, self._draws.of(part)
        assert estimate is not None, "only prices are compared"
        # lanes overlap: a round may take less than the sum of its ops
        whole = sum(op.seconds.median for op in estimate.breakdown)
        overlap = estimate.seconds_per_round.median / maximum(whole, 1e-300)
        seconds: Floats = sum(self._varied(op) for op in drawn.ops) * overlap
        drawn_tokens = drawn.tokens if self._varies("acceptance", str(part.drafter)) else 1.0
        tokens = np.where(estimate.measured, 1.0, drawn_tokens)
        if name == "tpot":
            return seconds / (estimate.tokens_per_round.mean * tokens)
        rounds = estimate.rounds.mean / tokens if name == "request" else estimate.first_round
        seconds_of_request: Floats = self._varied(drawn.prefill) + seconds * rounds
        return seconds_of_request

    def _varied(self, time: Drawn) -> Floats:
        return time.drawn if self._varies("device", time.name) else time.estimated

    def _varies(self, kind: str, name: str | None) -> bool:
        return self._only is None or self._only == (kind, name)


def _under_all_draws(times: Floats) -> Floats:
    return np.broadcast_to(times, (DRAWS, times.shape[1]))
