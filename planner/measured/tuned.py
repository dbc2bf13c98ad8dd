"""The answer to a problem of which plans were measured: chosen among those that ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.correcting import corrected
from specplan.planner.measured.plans import MeasuredPlans
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import cell_costs, score, simplest_of_best
from specplan.planner.search.composing import best_rounds, composed
from specplan.planner.search.limits import keeps_limits, nothing_admissible
from specplan.planner.search.search import SearchResult
from specplan.planner.search.settings import PLAIN, pricer_of, without_loads


def tuned(
    result: SearchResult, measured: MeasuredPlans, more: Sequence[Candidate] = ()
) -> SearchResult:
    """The search again, with a choice that rests on measured times alone.

    Args:
        result: of a search without measured plans.
        measured: at least one plan for every load.
        more: candidates beside those of the search, priced alike.

    Returns:
        The fastest plan that ran, or a schedule of such plans where several loads have different
        ones, by more than a tie; candidates that did not run keep prices set right by the others.

    Raises:
        InfeasibleError: by what was measured, no plan keeps the limits.
    """
    facts = replace(result.facts, measured=measured)
    single = [c for c in result.candidates if not c.by_cell]
    candidates = corrected(facts, [*single, *more])
    ran = [c for c in candidates if c.estimate is not None and np.any(c.estimate.measured)]
    ran = [c for c in ran if c.unsupported is None]
    if not ran:
        raise nothing_admissible(facts, candidates)
    costs = _costs(facts, ran)
    if np.isinf(costs).all(axis=0).any():
        raise nothing_admissible(facts, ran)
    chosen = _best_single(facts, ran, costs)
    which = best_rounds(costs / costs.min(axis=0)) if costs.shape[1] > 1 else np.zeros(1, np.int64)
    if len(set(which.tolist())) > 1:
        pricer = without_loads(pricer_of(facts), result.left_out)
        schedule = composed(facts, pricer, [ran[index] for index in which])
        if schedule.admissible:
            candidates.append(schedule)
            field = [schedule] if chosen is None else [schedule, chosen]
            chosen = simplest_of_best([(score(c, facts.objective), c) for c in field])
    if chosen is None:
        raise nothing_admissible(facts, ran)
    plain = next(candidate for candidate in candidates if candidate.method == PLAIN)
    return SearchResult(facts, tuple(candidates), chosen, plain, result.left_out)


def _costs(facts: ProblemFacts, ran: Sequence[Candidate]) -> NDArray[np.float64]:
    """What counts, [candidates, cells]; infinite where a plan did not run or misses a limit.

    At a load where none ran yet, the prices of those that ran at others.
    """
    rows, measured = [], []
    for candidate in ran:
        assert candidate.estimate is not None, "it ran"
        admissible = keeps_limits(facts, candidate.estimate)
        rows.append(np.where(admissible, cell_costs(candidate, facts.objective), np.inf))
        measured.append(np.broadcast_to(candidate.estimate.measured, rows[-1].shape))
    where = np.array(measured)
    costs: NDArray[np.float64] = np.where(where | ~where.any(axis=0), np.array(rows), np.inf)
    return costs


def _best_single(
    facts: ProblemFacts, ran: Sequence[Candidate], costs: NDArray[np.float64]
) -> Candidate | None:
    """The fastest of those that ran at every load; None where none did."""
    everywhere = np.asarray(np.isfinite(costs).all(axis=1))
    field = [c for c, whole in zip(ran, everywhere, strict=True) if whole and c.admissible]
    return min(field, key=lambda c: (score(c, facts.objective), c.words), default=None)
