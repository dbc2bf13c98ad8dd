"""Contenders of a tuning: candidates that run, with the uncertainty of their estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.measure.tuning.elimination import Standing, promising, stand
from specplan.measure.tuning.study import Trial
from specplan.planner import (
    Candidate,
    OpenSettings,
    SearchResult,
    keeps_limits,
    plan_key,
    request_draws,
)

Floats = NDArray[np.float64]
Load = tuple[int, int]

NEAR = 1.5
"""Candidates estimated at more than this many times the best of a load do not take part there."""
LEAST = 4
"""Least contenders of a load, however short the budget is."""


class Contenders:
    """All candidates of a problem that run, and the prior of the race among them.

    A contender is identified by the key of its plan (`plan_key`).

    Args:
        result: a search without measured plans.

    Attributes:
        result: the search.
        loads: batch sizes with prompt lengths, as in the estimates.
        drift: relative half width of the 90 % interval of the error that all estimates share.
        tried: plans of the search's own candidates.
    """

    def __init__(self, result: SearchResult) -> None:
        self.result = result
        self.loads: tuple[Load, ...] = tuple(
            (int(one.batch), int(one.prompt_tokens)) for one in result.plain.estimates
        )
        self.drift = float(result.facts.device.shared_error)
        self._draws: dict[str, Floats] = {}
        self._candidates: dict[str, Candidate] = {}
        for candidate in result.candidates:
            if candidate.priced and not candidate.by_cell and candidate.unsupported is None:
                self.add(candidate)
        self.tried = tuple(self._candidates)

    def __getitem__(self, key: str) -> Candidate:
        """The candidate of a plan."""
        return self._candidates[key]

    def __contains__(self, key: str) -> bool:
        """Whether a plan is known."""
        return key in self._candidates

    @property
    def untried(self) -> tuple[Candidate, ...]:
        """Candidates that the search did not try."""
        return tuple(one for key, one in self._candidates.items() if key not in self.tried)

    @cached_property
    def open(self) -> OpenSettings:
        """Prices of settings that the search did not try."""
        return OpenSettings.of(self.result)

    @cached_property
    def plain(self) -> str:
        """Plain decoding."""
        return next(key for key in self.tried if self[key] is self.result.plain)

    def add(self, candidate: Candidate) -> str:
        """Add a candidate with an estimate; returns its key."""
        assert candidate.plan is not None, "it has a price"
        key = plan_key(candidate.plan)
        self._candidates.setdefault(key, candidate)
        return key

    def recall(self, trials: Sequence[Trial]) -> None:
        """Add the settings that trials ran and the search did not try."""
        for trial in trials:
            if trial.plan not in self and trial.point:
                candidate = self.open.at(trial.method, trial.family, trial.point)
                if candidate is not None and candidate.priced:
                    self.add(candidate)

    def point(self, key: str) -> dict[str, Any]:
        """Point of a candidate in its family if the search did not try it; else empty."""
        return {} if key in self.tried else self.open.point(self[key])

    def seconds(self, key: str, load: Load) -> float:
        """Priced seconds of a request."""
        return self[key].estimates[self.loads.index(load)].request_seconds.median

    def keeps(self, candidate: Candidate, load: Load) -> bool:
        """Whether its estimate keeps all limits at a load."""
        assert candidate.estimate is not None, "it has a price"
        return bool(keeps_limits(self.result.facts, candidate.estimate)[self.loads.index(load)])

    def prior(self, keys: Sequence[str], load: Load) -> Floats:
        """Logarithms of seconds per token under the draws, [draws, contenders]; see `stand`."""
        new = [key for key in keys if key not in self._draws]
        if new:
            profiles = self.result.facts.profiles
            drawn = np.log(request_draws([self[key] for key in new], profiles))
            self._draws.update((key, drawn[:, place]) for place, key in enumerate(new))
        cell = self.loads.index(load)
        return np.stack([self._draws[key][:, cell] for key in keys], axis=1)

    def gaps(self, leader: str, new: Candidate, load: Load) -> Floats:
        """Logarithm of the seconds of a new candidate over those of a leader, [draws]."""
        drawn = request_draws([self[leader], new], self.result.facts.profiles)
        cells: Floats = np.diff(np.log(drawn), axis=1)[:, 0]
        return cells[:, self.loads.index(load)]

    def entrants(
        self, load: Load, seconds: float, opening: Callable[[float], float]
    ) -> tuple[str, ...]:
        """First contenders at a load: the likeliest winners first, and plain decoding.

        Args:
            load: batch and prompt length.
            seconds: time for their first turns; the least likely ones are left out.
            opening: seconds of a contender's first turns by those of one run.
        """
        field = [key for key in self.tried if self.keeps(self[key], load)] or [self.plain]
        least = min(self.seconds(key, load) for key in field)
        field = [key for key in field if self.seconds(key, load) <= NEAR * least]
        prior = self.prior(field, load)
        wins = np.bincount(prior.argmin(axis=1), minlength=len(field))
        order = np.lexsort((prior.mean(axis=0), -wins))
        likely = [field[i] for i in order if promising(prior)[i]]
        names = list(dict.fromkeys([*self._chosen(load), *likely]))
        spent = np.cumsum([opening(self.seconds(key, load)) for key in names])
        count = max(int((spent <= seconds).sum()), LEAST)
        return tuple(dict.fromkeys([*names[:count], self.plain]))

    def _chosen(self, load: Load) -> list[str]:
        """The search's choices for all loads together and for this one."""
        cell, result = self.loads.index(load), self.result
        wanted = [result.best_of_each[cell], *(part for part, _ in result.chosen.parts)]
        return [key for one in wanted for key in self.tried if self[key] is one]

    def standing(self, keys: Sequence[str], trials: Sequence[Trial], load: Load) -> Standing:
        """Standing of some contenders at a load."""
        mine = [trial for trial in trials if trial.load == load]
        turns = list(dict.fromkeys((trial.machine, trial.turn) for trial in mine))
        times = np.full((len(turns), len(keys)), np.nan)
        rows = {turn: row for row, turn in enumerate(turns)}
        columns = {key: column for column, key in enumerate(keys)}
        for trial in mine:
            if trial.plan in columns:
                row = rows[trial.machine, trial.turn]
                times[row, columns[trial.plan]] = trial.seconds_per_token
        return stand(self.prior(keys, load), times, self.drift)
