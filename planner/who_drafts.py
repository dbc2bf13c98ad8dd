"""The part of a problem that this machine can measure: what the reference runtime can run."""

from __future__ import annotations

from specplan.cost_models.shapes.drafter_shapes import is_drafter_folder
from specplan.planner.method import discover_methods
from specplan.planner.problem import TEXT_PROPOSER, Problem


def proposers(problem: Problem) -> tuple[str, ...]:
    """What may draft in this problem: its drafts by name, and what its sources bring."""
    names = [draft.name for draft in problem.models.drafts]
    for method in discover_methods().values():
        if method.sources and set(method.sources) <= set(problem.sources):
            names += method.source_proposers
    return tuple(dict.fromkeys(names))


def measured_here(problem: Problem) -> Problem:
    """The problem without the proposers whose acceptance can only be given.

    Drafters that read hidden states do not run here, and of sources only the text does.
    """
    unmeasured = {
        source
        for method in discover_methods().values()
        if not set(method.source_proposers) <= {TEXT_PROPOSER}
        for source in method.sources
    }
    models = problem.models.model_copy(
        update={
            "drafts": tuple(
                draft for draft in problem.models.drafts if not is_drafter_folder(draft.path)
            )
        }
    )
    sources = tuple(source for source in problem.sources if source not in unmeasured)
    left = problem.model_copy(update={"models": models, "sources": sources})
    known = proposers(left)
    acceptance = {name: path for name, path in problem.acceptance.items() if name in known}
    return left.model_copy(update={"acceptance": acceptance})
