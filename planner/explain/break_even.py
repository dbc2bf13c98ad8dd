"""Where a plan stops paying against plain decoding: acceptance, batch, context, draft latency.

Every point is found by pricing the plan and plain decoding anew over a range of the quantity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from specplan.cost_models.cells import grid, split
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.intervals import Interval, Seconds
from specplan.cost_models.memory.plan_memory import largest_batch
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.cost_models.rounds.segments import Drafted
from specplan.planner.explain.numbers import interval_data, seconds_data
from specplan.planner.explain.priced_break_even import (
    PricedBreakEven,
    most_scale,
    priced_break_even,
    scaled_hazards,
)
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import gains
from specplan.planner.search.objectives import Objective

POINTS, CURVE_STEP = 33, 4
"""Values looked at of each quantity; the curve over acceptance has every fourth."""
MOST_REQUESTS = 1024
LEAST_CONTEXT = 16
SLOWEST_DRAFT = 100.0
"""Longest draft step looked at, in today's."""


def break_evens(
    facts: ProblemFacts,
    candidate: Candidate,
    plain: Candidate,
    cells: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """The break-even points of a plan that drafts, ready for JSON.

    Args:
        facts: the problem and what is known of it.
        candidate: a plan of one round that drafts, with a price.
        plain: plain decoding, with a price.
        cells: the cells of the workload that matter; default all.

    Returns:
        One entry per quantity and, but for the batch, per cell of the workload: `unknown`, `unit`,
        `batch` and `prompt_tokens` (None for the one that varies), `now` (an estimate, or None),
        and the fields of `PricedBreakEven`; for the acceptance also the `tokens` per step at every
        edge, and a `curve` of `tokens` per step with the `gain` over no speculation.
    """
    places = tuple(range(len(candidate.estimates)) if cells is None else cells)
    pricing = _Repricing(facts, candidate, plain, places)
    entries: list[dict[str, Any]] = []
    for points in (pricing.acceptance(), pricing.draft(), pricing.batch(), pricing.context()):
        entries += points
    return entries


@dataclass(frozen=True)
class _Repricing:
    facts: ProblemFacts
    candidate: Candidate
    plain: Candidate
    cells: tuple[int, ...]

    def acceptance(self) -> Iterator[dict[str, Any]]:
        """By the factor on every hazard."""
        plan, pricer = self.candidate.plan, self._pricer(*self._loads())
        assert plan is not None and self.plain.estimate is not None
        drafted = pricer.drafted(plan, self._profile())
        if isinstance(drafted, Unpriced):
            return
        most = [most_scale(drafting) for _, drafting in drafted if drafting.evidence is not None]
        if not most:
            return
        scales = np.linspace(0.0, min(most), POINTS)
        prices = [pricer.worth(plan, _scaled(drafted, float(scale))) for scale in scales]
        if any(isinstance(price, Unpriced) for price in prices):
            return
        curves = [
            gains(p, self.plain.estimate, self._objective)
            for p in prices
            if isinstance(p, Estimate)
        ]
        counts = [p.tokens_per_round for p in prices if isinstance(p, Estimate)]
        for place in self.cells:
            cell = self.candidate.estimates[place]
            curve, tokens = _stacked(curves, place), _stacked(counts, place).mean
            break_even = priced_break_even(scales.tolist(), curve)
            entry = _entry("acceptance", "times today's", cell, None, break_even)
            edges = [edge for stretch in break_even.pays for edge in stretch if edge is not None]
            entry["tokens"] = [
                {key: None if x is None else float(np.interp(x, scales, tokens))
                 for key, x in asdict(edge).items()}
                for edge in edges
            ]  # fmt: skip
            entry["curve"] = [
                {"tokens": float(np.asarray(tokens)[i]), "gain": interval_data(gain)}
                for i, gain in enumerate(split(curve, POINTS))
                if i % CURVE_STEP == 0
            ]
            yield entry

    def draft(self) -> Iterator[dict[str, Any]]:
        """By the time of a draft step."""
        scales = np.concatenate([[0.0], np.geomspace(1.0 / 64, SLOWEST_DRAFT, 2 * POINTS)])
        for place in self.cells:
            cell, plain = self.candidate.estimates[place], self.plain.estimates[place]
            steps, seconds = draft_steps(cell)
            if not steps:
                return
            curves = [
                gains(_slowed(cell, seconds, float(x)), plain, self._objective) for x in scales
            ]
            step = seconds.median / steps
            break_even = priced_break_even((scales * step).tolist(), _stacked(curves, 0))
            now = seconds_data(seconds * (1.0 / steps))
            yield _entry("draft_seconds", "s", cell, now, break_even)

    def batch(self) -> Iterator[dict[str, Any]]:
        """By the requests that run together, at the mean prompt."""
        prompt = round(self.facts.mean_prompt_tokens)
        assert self.candidate.plan is not None
        most = largest_batch(
            self.candidate.plan,
            self.facts.shapes,
            self.facts.memory_bytes,
            prompt + self._output_tokens,
            prompt,
            self.facts.runtime,
        )
        values = _whole(1, min(most, MOST_REQUESTS))
        if len(values) > 1:
            curve = self._curve(np.array(values), np.full(len(values), prompt))
            if curve is not None:
                break_even = priced_break_even(values, curve[0], whole=True)
                first = self.candidate.estimates[0]
                entry = _entry("batch", "requests", first, None, break_even, extrapolated=curve[1])
                yield entry | {"batch": None, "prompt_tokens": prompt}

    def context(self) -> Iterator[dict[str, Any]]:
        """By the length of the prompt."""
        models = [name for name in self.facts.shapes if name == "target" or self._runs(name)]
        positions = min(self.facts.shape(name).max_positions or 2**17 for name in models)
        cells = {self.candidate.estimates[place].batch: place for place in self.cells}
        sizes = sorted(cells)
        values = _whole(LEAST_CONTEXT, positions - self._output_tokens)
        if len(values) < 2:
            return
        batch, prompt = grid(sizes, values)
        curve = self._curve(batch, prompt)
        if curve is None:
            return
        for size in sizes:
            fitting = (batch == size) & curve[2]
            if fitting.sum() < 2:
                continue
            part = _part(curve[0], fitting)
            break_even = priced_break_even(prompt[fitting].tolist(), part, whole=True)
            cell = self.candidate.estimates[cells[size]]
            entry = _entry("prompt_tokens", "tokens", cell, None, break_even, extrapolated=curve[1])
            yield entry | {"prompt_tokens": None}

    def _curve(self, batch: Any, prompt: Any) -> tuple[Interval, bool, Any] | None:
        """Speedups by cell, whether some were extrapolated, and where the memory suffices."""
        pricer = self._pricer(batch, prompt)
        plan, plain = self.candidate.plan, self.plain.plan
        assert plan is not None and plain is not None
        try:
            price, base = pricer.estimate(plan, self._profile()), pricer.estimate(plain, None)
        except ValueError:  # a schedule runs other rounds at other loads
            return None
        if isinstance(price, Unpriced) or isinstance(base, Unpriced):
            return None
        fits = np.broadcast_to(price.memory.total <= self.facts.memory_bytes, batch.shape)
        return gains(price, base, self._objective), bool(np.any(price.extrapolated)), fits

    def _pricer(self, batch: Any, prompt: Any) -> Pricer:
        facts, outputs = self.facts, self._output_tokens
        cached = facts.problem.workload.cached_prefix
        own = (facts.device, facts.shapes, batch, prompt, outputs, None, cached, facts.runtime)
        return Pricer(*own)

    @property
    def _objective(self) -> Objective:
        return self.facts.objective

    def _loads(self) -> tuple[Any, Any]:
        cells = self.candidate.estimates
        return np.array([c.batch for c in cells]), np.array([c.prompt_tokens for c in cells])

    @property
    def _output_tokens(self) -> int:
        return round(fmean(request.output_tokens for request in self.facts.requests))

    def _profile(self) -> Any:
        drafter = self.candidate.drafter
        return None if drafter is None else self.facts.profiles[drafter]

    def _runs(self, model: str) -> bool:
        assert self.candidate.plan is not None
        return model in self.candidate.plan.models_run


def _scaled(drafted: Drafted, scale: float) -> Drafted:
    """What rounds draft, were every hazard of each so many times as high."""
    return [
        (
            stretch,
            drafting
            if drafting.evidence is None
            else replace(drafting, evidence=scaled_hazards(drafting, scale)),
        )
        for stretch, drafting in drafted
    ]


def draft_steps(estimate: Estimate) -> tuple[int, Seconds]:
    """Forwards of draft models in a round, and the time of all of them; (0, none) without any."""
    steps, seconds = 0, Seconds.exact(0.0)
    for part in estimate.breakdown:
        if part.model is not None and part.model != "target":
            steps, seconds = steps + part.times, seconds + part.seconds
    return steps, seconds


def _slowed(estimate: Estimate, draft: Seconds, factor: float) -> Estimate:
    """The estimate, were a draft step `factor` times as long."""
    before = estimate.seconds_per_round
    more = factor - 1.0
    seconds = Seconds(
        before.median + more * draft.median,
        max(0.0, before.low + more * draft.low),
        before.high + more * draft.high,
        before.extrapolated,
    )
    decode = seconds.times(estimate.rounds)
    return replace(
        estimate,
        seconds_per_round=seconds,
        seconds_per_token=seconds.times(estimate.tokens_per_round.inverse),
        request_seconds=estimate.prefill + decode,
    )


def _entry(
    unknown: str,
    unit: str,
    cell: Estimate,
    now: dict[str, float] | None,
    break_even: PricedBreakEven,
    extrapolated: bool = False,
) -> dict[str, Any]:
    return {
        "unknown": unknown,
        "unit": unit,
        "batch": cell.batch,
        "prompt_tokens": cell.prompt_tokens,
        "now": now,
        "extrapolated": extrapolated,
        "always": break_even.always,
        "never": break_even.never,
        **asdict(break_even),
    }


def _stacked(curves: Sequence[Interval], place: int) -> Interval:
    """One interval of arrays from many, of each the entry of a cell."""

    def values(field: str) -> Any:
        cells = [np.ravel(getattr(curve, field)) for curve in curves]
        return np.array([cell[min(place, len(cell) - 1)] for cell in cells])

    return Interval(values("mean"), values("low"), values("high"))


def _part(curve: Interval, mask: Any) -> Interval:
    fields = (np.broadcast_to(x, mask.shape)[mask] for x in (curve.mean, curve.low, curve.high))
    return Interval(*fields)


def _whole(low: int, high: int) -> list[int]:
    """Whole numbers in about even ratios."""
    if high < low:
        return []
    return sorted({round(x) for x in np.geomspace(low, high, POINTS)})
