"""The schedule of a search: which candidate's round runs in which cells of the workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.estimate import Pricer
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import cell_costs, pays, simplest_of_best
from specplan.planner.search.limits import keeps_limits, misses
from specplan.planner.search.objectives import Load
from specplan.planner.search.schedule import Grid, best_rounds, guards, scheduled
from specplan.planner.search.support import unsupported

SCHEDULE = "schedule"
"""What stands for the method of a plan made of several methods' rounds."""


def best_schedule(
    facts: ProblemFacts, pricer: Pricer, candidates: Sequence[Candidate], plain: Candidate
) -> Candidate | None:
    """The best schedule over the workload's cells; None where one round does for all of them.

    A candidate that drafts takes part in the cells where it beats plain decoding by more than the
    error of the two, or where a limit refuses plain decoding. Every cell counts alike: by its cost
    over the least that is possible there.
    """
    priced, costs = _priced_cells(facts, candidates, plain)
    if isinstance(facts.objective, Load):
        costs = _where_any_keeps(facts, priced, costs, plain)
    if costs.shape[1] == 1 or np.isinf(costs).all(axis=0).any():
        return None
    which = best_rounds(costs / costs.min(axis=0))
    rounds = list(dict.fromkeys(which.tolist()))
    if len(rounds) == 1:
        return None
    return composed(facts, pricer, [priced[index] for index in which])


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
    found: list[Candidate | None] = []
    for cell, column in enumerate(costs.T.tolist()):
        field = [pair for pair in zip(column, priced, strict=True) if isfinite(pair[0])]
        found.append(simplest_of_best(field, cell) if field else None)
    return tuple(found)


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
        allowed = allowed & (pays(candidate, plain) | ~keeps_limits(facts, plain.estimate))
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
    found: NDArray[np.float64] = np.where(np.isinf(costs).all(axis=0), any_paying, costs)
    return found


def _may_run(
    facts: ProblemFacts, candidate: Candidate, plain: Candidate
) -> NDArray[np.bool_] | bool:
    if candidate is plain or candidate.estimate is None:
        return candidate is plain
    fits = np.asarray(candidate.estimate.memory.total) <= facts.memory_bytes
    return pays(candidate, plain) & fits


def composed(facts: ProblemFacts, pricer: Pricer, by_cell: Sequence[Candidate]) -> Candidate:
    """The schedule that runs a candidate's round at each load, in the order of the estimates."""
    parts = list({id(candidate): candidate for candidate in by_cell}.values())
    names = {id(candidate): f"r{index}" for index, candidate in enumerate(parts)}
    grid, cells = _grid(pricer)
    conditions = guards(grid, [[names[id(by_cell[cell])] for cell in row] for row in cells])
    plan = scheduled(SCHEDULE, {names[id(c)]: c.plan for c in parts if c.plan}, conditions)
    which = np.array([int(names[id(candidate)][1:]) for candidate in by_cell])
    estimate = pricer.composed(plan, [c.estimate for c in parts if c.estimate], which)
    cannot, missed = unsupported(facts, plan), map(str, misses(facts, estimate))
    return Candidate(
        method=SCHEDULE,
        family="by batch and context",
        options={names[id(c)]: {"method": c.method, "words": c.words, **c.options} for c in parts},
        words=_words(conditions, {names[id(c)]: f"{c.method} {c.words}".strip() for c in parts}),
        plan=plan,
        estimate=estimate,
        refusal="; ".join([*([cannot] if cannot else []), *missed]) or None,
        unsupported=cannot,
        by_cell=tuple(by_cell),
    )


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
    told = [f"{words[name]} where {condition}" for condition, name in before]
    return "; ".join([*told, f"otherwise {words[otherwise]}"])
