"""The schedule of a search: which candidate's round runs in which cells of the workload.

Rounds are added one at a time, each the one that gains most beside those already there, until the
next would gain less than a tie. The grid's cells are then cut into ranges: bounds lie at the
geometric mean of neighbouring grid values, and hysteresis keeps a load that hovers at a bound from
switching back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.estimate import Pricer
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import TIE, cell_costs, pays, simplest_of_best
from specplan.planner.search.limits import keeps_limits, misses, unsupported
from specplan.planner.search.objectives import Load
from specplan.planner.templates.merged_rounds import scheduled, take_turns

SCHEDULE = "schedule"
"""What stands for the method of a plan made of several methods' rounds."""
MOST_ROUNDS = 4

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def best_schedule(
    facts: ProblemFacts, pricer: Pricer, candidates: Sequence[Candidate], plain: Candidate
) -> Candidate | None:
    """The best schedule over the workload's cells; None where one round does for all of them.

    A candidate that drafts takes part in the cells where it beats plain decoding by more than the
    error of the two, or where a limit refuses plain decoding. Every cell counts alike: by its cost
    over the least that is possible there. Plans whose rounds cannot take turns with plain decoding,
    since they draw by the numbers of a position or read hidden states that only their own rounds
    keep, take no part.
    """
    try:
        return _best_schedule(facts, pricer, candidates, plain)
    except UsageError:
        able = [c for c in candidates if c.plan and plain.plan and take_turns(c.plan, plain.plan)]
        return _best_schedule(facts, pricer, able, plain)


def _best_schedule(
    facts: ProblemFacts, pricer: Pricer, candidates: Sequence[Candidate], plain: Candidate
) -> Candidate | None:
    priced, costs = _priced_cells(facts, candidates, plain)
    if isinstance(facts.objective, Load):
        costs = _where_any_keeps(facts, priced, costs, plain)
    if costs.shape[1] == 1 or np.isinf(costs).all(axis=0).any():
        return None
    which = best_rounds(costs / costs.min(axis=0))
    rounds = list(dict.fromkeys(which.tolist()))
    if len(rounds) == 1:
        return None
    schedule = composed(facts, pricer, [priced[index] for index in which])
    if schedule.unsupported is None or isinstance(facts.objective, Load):
        return schedule
    return _best_by_batch(facts, pricer, priced) or schedule


def _best_by_batch(
    facts: ProblemFacts, pricer: Pricer, priced: Sequence[Candidate]
) -> Candidate | None:
    """The best schedule by batch size alone, as engines have it; None where one round does.

    A candidate takes part at a batch size where it keeps the limits at all contexts. Whether the
    whole beats plain decoding by more than the error is left to the choice.
    """
    rows = [(c, c.estimate) for c in priced if c.estimate is not None]
    costs = np.array(
        [
            np.where(keeps_limits(facts, price), cell_costs(c, facts.objective), np.inf)
            for c, price in rows
        ]
    )
    if np.isinf(costs).all(axis=0).any():
        return None
    sizes, of_cell = np.unique(pricer.batch, return_inverse=True)
    shares = costs / costs.min(axis=0)
    by_size = np.array([shares[:, of_cell == size].mean(axis=1) for size in range(len(sizes))]).T
    if np.isinf(by_size).all(axis=0).any():
        return None
    which = best_rounds(by_size)
    if len(set(which.tolist())) == 1:
        return None
    schedule = composed(facts, pricer, [rows[which[size]][0] for size in of_cell])
    return schedule if schedule.unsupported is None else None


def best_of_each(
    facts: ProblemFacts, candidates: Sequence[Candidate], plain: Candidate
) -> tuple[Candidate | None, ...]:
    """The candidate that `choose` takes for every load alone; None where a limit refuses all.

    Under the objective goodput, by the seconds of a request.

    What a plan for all loads may not do, because it does not fit or is too slow at one of them,
    may still be the best for others.
    """
    single = [candidate for candidate in candidates if not candidate.by_cell]
    priced, costs = _priced_cells(facts, single, plain)
    bests: list[Candidate | None] = []
    for cell, column in enumerate(costs.T.tolist()):
        field = [pair for pair in zip(column, priced, strict=True) if isfinite(pair[0])]
        bests.append(simplest_of_best(field, cell) if field else None)
    return tuple(bests)


def _priced_cells(
    facts: ProblemFacts, candidates: Sequence[Candidate], plain: Candidate
) -> tuple[list[Candidate], NDArray[np.float64]]:
    """Candidates with a price, and their costs, [candidates, cells]; infinite where refused."""
    priced = [c for c in candidates if c.estimate is not None and c.unsupported is None]
    return priced, np.array([_costs(facts, candidate, plain) for candidate in priced])


def _costs(facts: ProblemFacts, candidate: Candidate, plain: Candidate) -> NDArray[np.float64]:
    """Costs by cell, infinite where a limit refuses it.

    Also where it drafts and does not beat plain decoding, unless a limit refuses that.
    """
    assert candidate.estimate is not None and plain.estimate is not None
    allowed = keeps_limits(facts, candidate.estimate)
    if candidate is not plain:
        allowed = allowed & (
            pays(candidate, plain, facts.objective) | ~keeps_limits(facts, plain.estimate)
        )
    return np.where(allowed, cell_costs(candidate, facts.objective), np.inf)


def _where_any_keeps(
    facts: ProblemFacts,
    priced: Sequence[Candidate],
    costs: NDArray[np.float64],
    plain: Candidate,
) -> NDArray[np.float64]:
    """Costs at a load, [candidates, cells].

    A cell in which nothing keeps the limits may still be needed, to tell the times below it: there
    whatever pays and fits takes part, and plain decoding where nothing fits.
    """
    objective = facts.objective
    any_paying = np.array(
        [np.where(_may_run(facts, c, plain), cell_costs(c, objective), np.inf) for c in priced]
    )
    completed: NDArray[np.float64] = np.where(np.isinf(costs).all(axis=0), any_paying, costs)
    return completed


def _may_run(
    facts: ProblemFacts, candidate: Candidate, plain: Candidate
) -> NDArray[np.bool_] | bool:
    if candidate is plain or candidate.estimate is None:
        return candidate is plain
    fits = np.asarray(candidate.estimate.memory.total) <= facts.memory_bytes
    return pays(candidate, plain, facts.objective) & fits


def composed(facts: ProblemFacts, pricer: Pricer, by_cell: Sequence[Candidate]) -> Candidate:
    """The schedule that runs a candidate's round at each load, in the order of the estimates."""
    parts = list({id(candidate): candidate for candidate in by_cell}.values())
    names = {id(candidate): f"r{index}" for index, candidate in enumerate(parts)}
    grid, cells = _grid(pricer)
    conditions = guards(grid, [[names[id(by_cell[cell])] for cell in row] for row in cells])
    plan = scheduled(SCHEDULE, {names[id(c)]: c.plan for c in parts if c.plan}, conditions)
    which = np.array([int(names[id(candidate)][1:]) for candidate in by_cell])
    alone = _alone(facts, pricer, plan, by_cell)
    estimate = pricer.composed(plan, [c.estimate for c in parts if c.estimate], which, alone)
    cannot, missed = unsupported(facts, plan), map(str, misses(facts, estimate))
    return Candidate(
        method=SCHEDULE,
        family="by batch and context",
        options={names[id(c)]: {**c.named, **c.options} for c in parts},
        words=_words(conditions, {names[id(c)]: f"{c.method} {c.words}".strip() for c in parts}),
        plan=plan,
        estimate=estimate,
        refusal="; ".join([*([cannot] if cannot else []), *missed]) or None,
        unsupported=cannot,
        by_cell=tuple(by_cell),
        alone=tuple(np.flatnonzero(alone).tolist()),
    )


def _alone(
    facts: ProblemFacts, pricer: Pricer, plan: Plan, by_cell: Sequence[Candidate]
) -> NDArray[np.bool_]:
    """Where a schedule's drafting models do not fit, and the round does without: [cells].

    The schedule is planned for such a cell with the target alone in memory. Not at a load, under
    which one server passes through all batch sizes.
    """
    fits = np.broadcast_to(pricer.memory(plan).total <= facts.memory_bytes, (len(by_cell),))
    without = np.array([c.plan is not None and c.plan.models_run == ("target",) for c in by_cell])
    return np.asarray(~fits & without & (not isinstance(facts.objective, Load)))


def _grid(pricer: Pricer) -> tuple[Grid, list[list[int]]]:
    """The loads in rising order, and the pricer's cell of each, [batches][contexts].

    A load that was left out has the cell of the next smaller one.
    """
    contexts = pricer.prompt_tokens + pricer.output_tokens / 2.0
    places = {load: index for index, load in enumerate(zip(pricer.batch, contexts, strict=True))}
    batches, lengths = (sorted(set(axis.tolist())) for axis in (pricer.batch, contexts))
    cells: list[list[int]] = []
    for batch in batches:
        row: list[int] = []
        for column, length in enumerate(lengths):
            smaller = row[-1] if row else cells[-1][column] if cells else 0
            row.append(places.get((batch, length), smaller))
        cells.append(row)
    return Grid(tuple(batches), tuple(lengths)), cells


def _words(conditions: Sequence[tuple[str, str]], words: Mapping[str, str]) -> str:
    *before, (_, otherwise) = conditions
    clauses = [f"{words[name]} where {condition}" for condition, name in before]
    return "; ".join([*clauses, f"otherwise {words[otherwise]}"])


@dataclass(frozen=True)
class Grid:
    """The loads that plans are priced at.

    Attributes:
        batches: batch sizes, rising.
        contexts: mean texts of the requests, in tokens, rising.
    """

    batches: tuple[int, ...]
    contexts: tuple[float, ...]


def best_rounds(costs: Floats) -> Integers:
    """Which candidate runs in each cell.

    Args:
        costs: [candidates, cells], time per token, by the least of each cell where all cells are
            to count alike; infinite where a limit forbids a candidate. A candidate may be the only
            one of a cell.

    Returns:
        Candidate of each cell, [cells]; at most `MOST_ROUNDS` different ones, and a single one
        unless each more lowers the mean cost by at least `TIE`.
    """
    chosen: list[int] = []
    best = np.full(costs.shape[1], np.inf)
    while len(chosen) < MOST_ROUNDS:
        together = np.minimum(costs, best)
        missing = np.isinf(together).sum(axis=1)
        means = np.where(np.isfinite(together), together, 0.0).mean(axis=1)
        order = np.lexsort((np.arange(len(costs)), means, missing))
        first = int(order[0])
        fewer = missing[first] < np.isinf(best).sum()
        if chosen and not fewer and means[first] > (1.0 - TIE) * best[np.isfinite(best)].mean():
            break
        chosen.append(first)
        best = together[first]
    rows = costs[chosen]
    by_cell: Integers = np.array(chosen, dtype=np.int64)[np.argmin(rows, axis=0)]
    return by_cell


def guards(grid: Grid, choice: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Conditions in order, each with its round; the last one's condition is empty.

    Args:
        grid: the loads.
        choice: round by batch and context, [batches][contexts].
    """
    conditions: list[tuple[str, str]] = []
    rows = [tuple(row) for row in choice]
    bounds = [*(_between(a, b) for a, b in zip(grid.batches, grid.batches[1:], strict=False)), None]
    for row, same in groupby(zip(rows, bounds, strict=True), key=lambda pair: pair[0]):
        upper = list(same)[-1][1]
        batch = "" if upper is None else f"batch <= {upper:g}"
        edges = zip(grid.contexts, grid.contexts[1:], strict=False)
        limits = [*(_between(a, b) for a, b in edges), None]
        for name, part in groupby(zip(row, limits, strict=True), key=lambda pair: pair[0]):
            last = list(part)[-1][1]
            context = "" if last is None else f"context <= {last:g}"
            conditions.append((" and ".join(filter(None, (batch, context))), name))
    return tuple(conditions)


def _between(a: float, b: float) -> float:
    return float(f"{(a * b) ** 0.5:.3g}")
