"""How sure a choice is: chance of being the best, expected regret, and what to measure next.

Every candidate's time is recomputed under draws of what the estimates leave open, the same state of
the world for all candidates of a draw:

* device: per model (and for all other ops together) one factor that every pass of it shares, and
  one for each width of its passes; their half widths are those of the estimates less what all times
  of the device have in common, split so that the shared part carries `SHARED` of the variance;
* acceptance: per proposer, the draws of its profile (`AcceptanceProfile.token_draws`).

The value of measuring one of them is the expected value of partial perfect information (Raiffa and
Schlaifer 1961): how much regret is saved, in the mean, by choosing after it is known. It is
computed with the other sources at their centre.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.cost import maximum
from specplan.cost_models.drafting import Drafting, read_drafting
from specplan.cost_models.intervals import HALF_WIDTH_90, Seconds, beside
from specplan.planner.candidates import Candidate
from specplan.planner.comparing import geometric_mean, score
from specplan.planner.objectives import Load, Objective
from specplan.planner.serving import Times, serve

DRAWS = 400
SHARED = 0.64
"""Share of the variance of a pass's time that all passes of its model have in common."""
NEAR = 1.25
"""Candidates whose time is within this factor of the best may turn out to be the best."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """Something that is not known well.

    Attributes:
        kind: `device` or `acceptance`.
        name: of the model, "ops" for all that is no forward, or the proposer.
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
    profiles: Mapping[str, AcceptanceProfile],
    objective: Objective,
) -> Confidence:
    """How sure it is that `chosen` is the best of the admissible candidates.

    Args:
        chosen: an admissible candidate.
        candidates: all of them.
        profiles: by proposer.
        objective: what the time of a candidate is.
    """
    field = _field(chosen, candidates, objective)
    worlds = _Worlds(profiles)
    times = np.stack([worlds.times(candidate, objective) for candidate in field], axis=1)
    best = np.bincount(times.argmin(axis=1), minlength=len(field)) / len(times)
    rivals = sorted(zip(field[1:], best[1:].tolist(), strict=True), key=lambda pair: -pair[1])
    return Confidence(
        probability_best=float(best[0]),
        expected_regret=_regret(times),
        rivals=tuple(pair for pair in rivals if pair[1] > 0.0),
        measurements=_measurements(field, worlds, objective),
    )


def request_draws(
    candidates: Sequence[Candidate], profiles: Mapping[str, AcceptanceProfile]
) -> Floats:
    """Seconds of a request per output token under the draws, [draws, candidates, cells].

    The same draw is the same state of the world for all candidates, in every call; what all times
    of the device have in common is left out.

    Args:
        candidates: with a price each.
        profiles: by proposer.
    """
    worlds = _Worlds(profiles)
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
    field: Sequence[Candidate], worlds: _Worlds, objective: Objective
) -> tuple[Measurement, ...]:
    found = []
    for kind, name in sorted({source for c in field for source in _sources(c)}):
        alone = _Worlds(worlds.profiles, only=(kind, name))
        times = np.stack([alone.times(candidate, objective) for candidate in field], axis=1)
        saved = (times.mean(axis=0).min() - times.min(axis=1).mean()) / times[:, 0].mean()
        found.append(Measurement(kind, name, float(max(saved, 0.0))))
    return tuple(sorted(found, key=lambda measurement: -measurement.regret_saved))


def _sources(candidate: Candidate) -> set[tuple[str, str]]:
    found = set()
    for part, _ in candidate.parts:
        assert part.estimate is not None, "only prices are compared"
        found |= {("device", op.model or "ops") for op in part.estimate.breakdown}
        if part.proposer is not None:
            found.add(("acceptance", part.proposer))
    return found


class _Worlds:
    """Draws of everything that is not known; `only` one source varies when it is given."""

    def __init__(
        self, profiles: Mapping[str, AcceptanceProfile], only: tuple[str, str] | None = None
    ) -> None:
        self.profiles = profiles
        self.only = only
        self._factors: dict[tuple[str, ...], Floats] = {}
        self._priced: dict[int, Times] = {}

    def times(self, candidate: Candidate, objective: Objective) -> Floats:
        """Its score under each draw, [draws]: seconds per output token, or of a request."""
        whole, times = candidate.estimate, self._of_all_cells(candidate)
        assert whole is not None, "only prices are compared"
        per_token = times.request / whole.output_tokens
        if isinstance(objective, Load):
            found = serve(objective, whole, times.each(_under_all_draws)).score
        elif objective == "throughput":
            found = 1.0 / (whole.batch / per_token).mean(axis=1)
        else:
            found = geometric_mean(per_token)
        return np.broadcast_to(found, DRAWS)

    def per_token(self, candidate: Candidate) -> Floats:
        """Seconds of a request per output token, [draws, cells]."""
        assert candidate.estimate is not None, "only prices are compared"
        request = self._of_all_cells(candidate).request
        return _under_all_draws(request / candidate.estimate.output_tokens)

    def _of_all_cells(self, candidate: Candidate) -> Times:
        """In each cell those of the round that runs there, [draws, cells].

        One row stands for all draws where none makes a difference.
        """
        if not candidate.by_cell:
            return self._times(candidate)
        shape = DRAWS, sum(len(cells) for _, cells in candidate.parts)
        found = Times(np.empty(shape), np.empty(shape), np.empty(shape))
        for part, cells in candidate.parts:
            times = self._times(part)
            for name in ("request", "ttft", "tpot"):
                getattr(found, name)[:, cells] = getattr(times, name)[:, cells]
        return found

    def _times(self, part: Candidate) -> Times:
        """Of one round, in all cells, [draws, cells], or one row for all draws."""
        if id(part) in self._priced:
            return self._priced[id(part)]
        estimate = part.estimate
        assert estimate is not None, "only prices are compared"
        shared = estimate.shared_error
        ops = [
            self._scaled(op.seconds, op.model or "ops", f"{op.op} {op.width}", shared)
            for op in estimate.breakdown
        ]
        # lanes overlap: a round may take less than the sum of its ops
        whole = sum(op.seconds.median for op in estimate.breakdown)
        seconds = sum(ops) * (estimate.seconds_per_round.median / maximum(whole, 1e-300))
        prefill = self._scaled(estimate.prefill, "target", "prefill", shared)
        tokens = np.where(estimate.measured, 1.0, self._tokens(part)[:, None])
        found = Times(
            request=prefill + seconds * (estimate.rounds.mean / tokens),
            ttft=prefill + seconds,
            tpot=seconds / (estimate.tokens_per_round.mean * tokens),
        )
        self._priced[id(part)] = found
        return found

    def _scaled(self, seconds: Seconds, name: str, which: str, shared_error: float) -> Floats:
        """A time under each draw, [draws, cells] or one of both; its machine's drift left out."""
        median = np.atleast_1d(np.asarray(seconds.median, dtype=np.float64))
        if self.only is not None and self.only != ("device", name):
            return median[None, :]
        half = np.asarray((seconds.high - seconds.low) / 2.0)
        relative = half / np.maximum(median, 1e-300)
        spread = np.asarray(beside(relative, shared_error)) / HALF_WIDTH_90
        shared, own = self._normal(name), self._normal(name, which)
        normal = SHARED**0.5 * shared + (1.0 - SHARED) ** 0.5 * own
        found: Floats = median * np.exp(spread * normal[:, None] - spread**2 / 2.0)
        return found

    def _tokens(self, part: Candidate) -> Floats:
        """Tokens per round over their mean, [draws]; one where no draw makes a difference."""
        name = part.proposer
        if name is None or (self.only is not None and self.only != ("acceptance", name)):
            return np.ones(1)
        key = "acceptance", str(id(part))
        if key not in self._factors:
            drawn = self._drawn(part, self.profiles[name])
            self._factors[key] = np.ones(DRAWS) if drawn is None else np.resize(drawn, DRAWS)
        return self._factors[key]

    def _drawn(self, part: Candidate, profile: AcceptanceProfile) -> Floats | None:
        assert part.plan is not None
        drafting = read_drafting(part.plan, part.plan.rounds[0], profile)
        assert isinstance(drafting, Drafting), "it has a price"
        draws = drafting.token_draws
        return None if draws is None else draws / drafting.tokens_per_round.mean

    def _normal(self, *key: str) -> Floats:
        if key not in self._factors:
            seed = zlib.crc32("|".join(key).encode())
            self._factors[key] = np.random.default_rng(seed).standard_normal(DRAWS)
        return self._factors[key]


def _under_all_draws(times: Floats) -> Floats:
    return np.broadcast_to(times, (DRAWS, times.shape[1]))
