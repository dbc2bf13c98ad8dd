"""What may draft in a problem, and what can be measured here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specplan.cost_models.shapes.drafter_shapes import is_drafter_folder
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.plan import Plan
from specplan.planner.draft_sources import DRAFT_SOURCES
from specplan.planner.method import Method, discover_methods
from specplan.planner.problem import TEXT_PROPOSER, Problem
from specplan.planner.proposer import Proposer

if TYPE_CHECKING:
    from specplan.planner.facts import ProblemFacts

MOST_SKIPPED_DRAFT = 8
"""Tokens that a model without some blocks drafts at most; its acceptance is measured so far."""


def leaves_blocks_out(problem: Problem) -> bool:
    """Whether a method of the problem drafts with the target without some blocks.

    To measure that takes minutes, so that beside draft models it must be asked for: by naming the
    method, or a set of blocks.
    """
    leaving = {name for name, method in discover_methods().items() if method.leaves_blocks_out}
    named = any(Proposer.read(proposer).skips for proposer in problem.acceptance)
    if problem.methods is not None:
        return not leaving.isdisjoint(problem.methods)
    return named or not problem.models.drafts


def searches_blocks(problem: Problem, target: ModelShape) -> bool:
    """Whether sets of blocks to leave out are to be searched for: none is named, some may be."""
    named = any(Proposer.read(proposer).skips for proposer in problem.acceptance)
    return leaves_blocks_out(problem) and not named and target.num_layers > 2


def proposers(problem: Problem, shapes: Mapping[str, ModelShape] | None = None) -> tuple[str, ...]:
    """What may draft in this problem: its drafts by name, and what its sources bring.

    Args:
        problem: the problem.
        shapes: model shapes by role, to count what its methods find in these models too.
    """
    names = [draft.name for draft in problem.models.drafts]
    for name, method in discover_methods().items():
        if not set(method.sources) <= set(problem.sources):
            continue
        names += method.source_proposers
        if shapes is not None and _is_offered(problem, name, method):
            names += method.proposers(shapes)
    return tuple(dict.fromkeys(names))


def further_proposers(facts: ProblemFacts) -> tuple[str, ...]:
    """What else may draft, given what is known of the problem: who is not known yet.

    Args:
        facts: with the device that prices drafts, and the profiles of all `proposers`; with less
            than these, what a device is to be measured for.
    """
    problem = facts.problem
    names = [
        proposer
        for name, method in discover_methods().items()
        if set(method.sources) <= set(problem.sources) and _is_offered(problem, name, method)
        for proposer in method.further_proposers(facts)
    ]
    return tuple(name for name in dict.fromkeys(names) if name not in facts.profiles)


def _is_offered(problem: Problem, name: str, method: Method[Any]) -> bool:
    return not method.by_name if problem.methods is None else name in problem.methods


def rehearsal_of(facts: ProblemFacts, proposer: str) -> Plan | None:
    """The plan whose rounds tell what is accepted of a proposer; None where something else does."""
    if not Proposer.read(proposer).way:
        return None
    plans = (method.rehearsal(facts, proposer) for method in discover_methods().values())
    return next((plan for plan in plans if plan is not None), None)


def measured_here(problem: Problem) -> Problem:
    """The problem without the proposers whose acceptance can only be given.

    Drafters that read hidden states do not run here, nor do the target's own modules.
    """
    unmeasured = {
        source
        for method in discover_methods().values()
        if not set(method.source_proposers) <= {TEXT_PROPOSER, *DRAFT_SOURCES}
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
    gone = set(proposers(problem)) - set(proposers(left))
    acceptance = {name: path for name, path in problem.acceptance.items() if name not in gone}
    return left.model_copy(update={"acceptance": acceptance})
