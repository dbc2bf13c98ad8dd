"""Times of candidates under random draws within their estimates' intervals; see `uncertainty`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.evidence.base import Drafting
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.intervals import HALF_WIDTH_90, Seconds, beside
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.cost_models.rounds.segments import read_drafted
from specplan.planner.search.candidates import Candidate

DRAWS = 400
SHARED = 0.64
"""Share of the variance of a pass's time that all passes of its model have in common."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """A time as it is estimated, [1, cells], and under each draw, [draws, cells] or one of both.

    Attributes:
        name: of the model that takes it, "ops" for what is no forward.
    """

    name: str
    estimated: Floats
    drawn: Floats


@dataclass(frozen=True)
class DrawnRound:
    """The parts of one round that draws make a difference to.

    Attributes:
        ops: of its breakdown.
        prefill: of the prompts.
        tokens: per round over their mean, [draws, cells] or one of both where nothing differs.
    """

    ops: tuple[Drawn, ...]
    prefill: Drawn
    tokens: Floats


class Draws:
    """Draws of everything that is not known; each part of a round is drawn once."""

    def __init__(self, profiles: Mapping[Drafter, AcceptanceProfile]) -> None:
        self._profiles = profiles
        self._normals: dict[tuple[str, ...], Floats] = {}
        self._rounds: dict[int, DrawnRound] = {}

    def of(self, part: Candidate) -> DrawnRound:
        """The parts of a candidate's round under each draw."""
        if id(part) not in self._rounds:
            estimate = part.estimate
            assert estimate is not None, "only prices are compared"
            shared = estimate.shared_error
            ops = (
                self._scaled(op.seconds, op.model or "ops", f"{op.op} {op.width}", shared)
                for op in estimate.breakdown
            )
            prefill = self._scaled(estimate.prefill, "target", "prefill", shared)
            self._rounds[id(part)] = DrawnRound(tuple(ops), prefill, self._tokens(part))
        return self._rounds[id(part)]

    def _scaled(self, seconds: Seconds, name: str, which: str, shared_error: float) -> Drawn:
        """A time of a model; its machine's drift left out."""
        median = np.atleast_1d(np.asarray(seconds.median, dtype=np.float64))
        half = np.asarray((seconds.high - seconds.low) / 2.0)
        relative = half / np.maximum(median, 1e-300)
        spread = np.asarray(beside(relative, shared_error)) / HALF_WIDTH_90
        shared, own = self._normal(name), self._normal(name, which)
        normal = SHARED**0.5 * shared + (1.0 - SHARED) ** 0.5 * own
        drawn: Floats = median * np.exp(spread * normal[:, None] - spread**2 / 2.0)
        return Drawn(name, median[None, :], drawn)

    def _tokens(self, part: Candidate) -> Floats:
        """Of the whole decode; each segment of it is as much shorter as its rounds emit more."""
        if part.drafter is None:
            return np.ones((1, 1))
        assert part.plan is not None and part.estimate is not None
        segments, profile = part.estimate.segments, self._profiles[part.drafter]
        drafted = read_drafted(part.plan, segments, profile.evidence)
        assert not isinstance(drafted, Unpriced), "it has a price"
        seconds = np.zeros((1, 1))
        for segment, drafting in drafted:
            seconds = seconds + np.atleast_2d(segment.share) / _relative_tokens(drafting)
        return 1.0 / seconds

    def _normal(self, *key: str) -> Floats:
        if key not in self._normals:
            seed = zlib.crc32("|".join(key).encode())
            self._normals[key] = np.random.default_rng(seed).standard_normal(DRAWS)
        return self._normals[key]


def _relative_tokens(drafting: Drafting) -> Floats:
    """Tokens per round of a round under draws, over their mean, [draws, 1], or one for all."""
    draws = drafting.token_draws
    if draws is None:
        return np.ones((1, 1))
    return np.resize(draws / drafting.tokens_per_round.mean, DRAWS)[:, None]
