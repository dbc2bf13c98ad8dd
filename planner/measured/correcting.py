"""Prices set right by what was measured: of plans that ran, and of plans like them.

Where a plan was measured, its times are the measured ones. The others of its drafter, and failing
these all others, are as much faster or slower than their price as the measured ones are in the
mean (of logarithms): the moment of the machine and an error that all prices share fall on them too,
so that no plan is preferred only because it was never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.corrected import Correction, correct
from specplan.cost_models.estimate import Estimate
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.plans import MeasuredPlan, plan_key
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.limits import with_price

Floats = NDArray[np.float64]


def corrected(facts: ProblemFacts, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of a search with the prices that measurements leave them.

    Args:
        facts: with the measured plans; without any, the candidates come back as they are.
        candidates: of single rounds, priced by the device and the profiles alone.
    """
    if not facts.measured.plans:
        return list(candidates)
    known = {(m.plan, m.batch, m.prompt_tokens): m for m in facts.measured.plans}
    each = [_factors(candidate, known) for candidate in candidates]
    pool = _Pool.of(zip(candidates, each, strict=True))
    return [
        candidate if factors is None else _corrected(facts, candidate, factors, pool)
        for candidate, factors in zip(candidates, each, strict=True)
    ]


@dataclass(frozen=True)
class _Factors:
    """Measured over priced, [cells]; nan where the plan was not measured.

    Attributes:
        seconds: of a request, as logarithms.
        tokens: of a round, as logarithms.
        error: relative half width of the seconds.
        shared: of what all plans measured there have in common.
    """

    seconds: Floats
    tokens: Floats
    error: Floats
    shared: Floats


def _factors(
    candidate: Candidate, known: Mapping[tuple[str, int, int], MeasuredPlan]
) -> _Factors | None:
    """None for a candidate without a price."""
    estimate = candidate.estimate
    if estimate is None or candidate.plan is None or candidate.by_cell:
        return None
    key, (batches, prompts) = plan_key(candidate.plan), _loads(estimate)
    rows = [known.get((key, batch, prompt)) for batch, prompt in zip(batches, prompts, strict=True)]
    seconds = np.atleast_1d(estimate.request_seconds.median) / estimate.output_tokens
    tokens = np.broadcast_to(estimate.tokens_per_round.mean, seconds.shape)
    return _Factors(
        np.log(_column(rows, lambda row: row.seconds_per_token) / seconds),
        np.log(_column(rows, lambda row: row.tokens_per_round) / tokens),
        _column(rows, lambda row: row.error),
        _column(rows, lambda row: row.shared),
    )


def _loads(estimate: Estimate) -> tuple[list[int], list[int]]:
    batch, prompt = np.broadcast_arrays(
        np.atleast_1d(estimate.batch), np.atleast_1d(estimate.prompt_tokens)
    )
    return [int(x) for x in batch], [int(x) for x in prompt]


def _column(rows: Sequence[MeasuredPlan | None], value: Callable[[MeasuredPlan], float]) -> Floats:
    return np.array([np.nan if row is None else value(row) for row in rows], dtype=np.float64)


@dataclass(frozen=True)
class _Pool:
    """Mean factors, as logarithms: by drafter, and of all measured plans.

    Attributes:
        seconds: [cells] by drafter; nan where none of its plans was measured.
        tokens: likewise.
        any_seconds: [cells] of all plans; nan where none was measured.
    """

    seconds: Mapping[Drafter | None, Floats]
    tokens: Mapping[Drafter | None, Floats]
    any_seconds: Floats

    @classmethod
    def of(cls, pairs: Iterator[tuple[Candidate, _Factors | None]]) -> _Pool:
        """From all candidates."""
        groups: dict[Drafter | None, list[_Factors]] = {}
        for candidate, factors in pairs:
            if factors is not None:
                groups.setdefault(candidate.drafter, []).append(factors)
        every = [factors for group in groups.values() for factors in group]
        return cls(
            {name: _mean([f.seconds for f in group]) for name, group in groups.items()},
            {name: _mean([f.tokens for f in group]) for name, group in groups.items()},
            _mean([f.seconds for f in every]),
        )

    def like(self, drafter: Drafter | None) -> tuple[Floats, Floats]:
        """Factors for plans of a drafter that were not measured, as logarithms, [cells]."""
        every = _filled(self.any_seconds, 0.0)
        own, tokens = self.seconds[drafter], self.tokens[drafter]
        if np.isnan(own).all():
            return every, np.zeros_like(every)
        return _filled(own, float(np.nanmean(own))), _filled(tokens, float(np.nanmean(tokens)))


def _mean(rows: Sequence[Floats]) -> Floats:
    """Over rows of the same cell, what is nan left out; nan where all are."""
    table = np.array(rows)
    counts = (~np.isnan(table)).sum(axis=0)
    sums = np.nansum(table, axis=0)
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def _filled(cells: Floats, otherwise: float) -> Floats:
    """What is nan: the mean of the other cells, or a number where there are none."""
    known = cells[~np.isnan(cells)]
    filled: Floats = np.where(np.isnan(cells), known.mean() if known.size else otherwise, cells)
    return filled


def _corrected(facts: ProblemFacts, candidate: Candidate, own: _Factors, pool: _Pool) -> Candidate:
    assert candidate.estimate is not None, "it has a price"
    seconds, tokens = pool.like(candidate.drafter)
    measured = ~np.isnan(own.seconds)
    by = Correction(
        seconds=np.exp(np.where(measured, own.seconds, seconds)),
        tokens=np.exp(np.where(measured, own.tokens, tokens)),
        error=np.where(measured, own.error, 0.0),
        shared=np.where(measured, own.shared, 0.0),
        measured=measured,
    )
    return with_price(facts, replace(candidate, refusal=None), correct(candidate.estimate, by))
