"""The schedule of a search: which candidate's round runs in which cells of the workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.estimate import Pricer
from specplan.planner.candidates import Candidate
from specplan.planner.comparing import Objective, cell_costs, pays
from specplan.planner.facts import ProblemFacts
from specplan.planner.limits import keeps_limits, misses
from specplan.planner.scheduling import Grid, best_rounds, guards, scheduled

SCHEDULE = "schedule"
"""What stands for the method of a plan made of several methods' rounds."""


def best_schedule(
    facts: ProblemFacts, pricer: Pricer, candidates: Sequence[Candidate], plain: Candidate
) -> Candidate | None:
    """The best schedule over the workload's cells; None where one round does for all of them.

    A candidate that drafts takes part in the cells where it beats plain decoding by more than its
    own interval.
    """
    priced = [c for c in candidates if c.estimate is not None and c.plan is not None]
    objective = facts.problem.objective
    costs = np.array([_costs(facts, c, plain, objective) for c in priced])
    if costs.shape[1] == 1 or np.isinf(costs).all(axis=0).any():
        return None
    which = best_rounds(costs)
    rounds = list(dict.fromkeys(which.tolist()))
    if len(rounds) == 1:
        return None
    return _candidate(facts, pricer, [priced[index] for index in which])


def _costs(
    facts: ProblemFacts, candidate: Candidate, plain: Candidate, objective: Objective
) -> NDArray[np.float64]:
    assert candidate.estimate is not None
    allowed = keeps_limits(facts, candidate.estimate)
    if candidate is not plain:
        allowed = allowed & pays(candidate, plain)
    return np.where(allowed, cell_costs(candidate, objective), np.inf)


def _candidate(facts: ProblemFacts, pricer: Pricer, by_cell: list[Candidate]) -> Candidate:
    parts = list({id(candidate): candidate for candidate in by_cell}.values())
    names = {id(candidate): f"r{index}" for index, candidate in enumerate(parts)}
    grid, cells = _grid(pricer)
    conditions = guards(grid, [[names[id(by_cell[cell])] for cell in row] for row in cells])
    plan = scheduled(SCHEDULE, {names[id(c)]: c.plan for c in parts if c.plan}, conditions)
    which = np.array([int(names[id(candidate)][1:]) for candidate in by_cell])
    estimate = pricer.composed(plan, [c.estimate for c in parts if c.estimate], which)
    return Candidate(
        method=SCHEDULE,
        family="by batch and context",
        options={names[id(c)]: {"method": c.method, "words": c.words, **c.options} for c in parts},
        words=_words(conditions, {names[id(c)]: f"{c.method} {c.words}".strip() for c in parts}),
        plan=plan,
        estimate=estimate,
        refusal="; ".join(map(str, misses(facts, estimate))) or None,
        by_cell=tuple(by_cell),
    )


def _grid(pricer: Pricer) -> tuple[Grid, list[list[int]]]:
    """The loads in rising order, and the pricer's cell of each, [batches][contexts]."""
    contexts = pricer.prompt_tokens + pricer.output_tokens / 2.0
    places = {load: index for index, load in enumerate(zip(pricer.batch, contexts, strict=True))}
    batches, lengths = (sorted(set(axis.tolist())) for axis in (pricer.batch, contexts))
    cells = [[places[batch, length] for length in lengths] for batch in batches]
    return Grid(tuple(batches), tuple(lengths)), cells


def _words(conditions: Sequence[tuple[str, str]], words: Mapping[str, str]) -> str:
    *before, (_, otherwise) = conditions
    told = [f"{words[name]} where {condition}" for condition, name in before]
    return "; ".join([*told, f"otherwise {words[otherwise]}"])
