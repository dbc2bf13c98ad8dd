"""What may draft in a problem, and what can be measured here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.drafters import (
    Drafter,
    Model,
    OwnRounds,
    SkipBlocks,
    Source,
)
from specplan.cost_models.models.drafter_shapes import is_drafter_folder
from specplan.cost_models.models.files.safetensors_headers import weight_files
from specplan.cost_models.models.heads.own_modules import stored_modules
from specplan.cost_models.models.model_shape import ModelShape, is_gguf
from specplan.ir.errors import UsageError
from specplan.ir.plan import MODULE_PREFIX, Plan
from specplan.planner.drafters.parts import stores_of
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Method, discover_methods
from specplan.planner.problem.schema import Problem

MOST_SKIPPED_DRAFT = 8
"""Tokens that a model without some blocks drafts at most; its acceptance is measured so far."""


def leaves_blocks_out(problem: Problem) -> bool:
    """Whether a method of the problem drafts with the target without some blocks.

    To measure that takes minutes, so that beside draft models it must be asked for: by naming the
    method, or a set of blocks.
    """
    leaving = {
        name
        for name, method in discover_methods().items()
        if any(option.searched for option in method.options.declared().values())
    }
    if problem.methods is not None:
        return not leaving.isdisjoint(problem.methods)
    return _names_blocks(problem) or not problem.models.drafts


def searches_blocks(problem: Problem, target: ModelShape) -> bool:
    """Whether sets of blocks to leave out are to be searched for: none is named, some may be."""
    return leaves_blocks_out(problem) and not _names_blocks(problem) and target.num_layers > 2


def named_drafters(problem: Problem) -> tuple[Model | Source, ...]:
    """What drafts in this problem by its own name: models, heads, and what its sources bring."""
    every: list[Model | Source] = [Model(draft.name) for draft in problem.models.drafts]
    for _, method in _with_sources(problem):
        every += [method.source_drafter] if method.source_drafter else []
    return tuple(dict.fromkeys(every))


def possible_drafters(facts: ProblemFacts) -> tuple[Drafter, ...]:
    """What may draft in this problem: models, sources, and what methods make of them."""
    problem = facts.problem
    stores = stores_of(facts.drafters)  # they draft in plans of their own rounds alone
    drafts = (draft.name for draft in problem.models.drafts)
    every: list[Drafter] = [Model(name) for name in drafts if name not in stores]
    for name, method in _with_sources(problem):
        every += [method.source_drafter] if method.source_drafter else []
        if _is_offered(problem, name, method):
            every += method.drafters(facts)
            every += own_drafters(facts, method, method.run_settings(facts))
    return tuple(dict.fromkeys(every))


def later_drafters(facts: ProblemFacts) -> tuple[Drafter, ...]:
    """Rounds that are run once more is known of the problem: those that are not known yet.

    Args:
        facts: with the device that prices drafts, and the profiles of all `drafters`; with less
            than these, what a device is to be measured for.
    """
    every = (
        drafter
        for name, method in _with_sources(facts.problem)
        if _is_offered(facts.problem, name, method)
        for drafter in own_drafters(facts, method, method.later_settings(facts))
    )
    return tuple(one for one in dict.fromkeys(every) if one not in facts.profiles)


def own_drafters(
    facts: ProblemFacts, method: Method[Any], settings: Iterator[Any]
) -> Iterator[Drafter]:
    """Whose rounds are run for some settings of a method."""
    for options in settings:
        drafter = method.drafter(facts, options)
        if drafter is not None:
            yield drafter


def profiling_plan(facts: ProblemFacts, drafter: Drafter) -> Plan | None:
    """The plan whose rounds tell what is accepted of a drafter; None where something else does."""
    if not isinstance(drafter, OwnRounds):
        return None
    for name, method in _with_sources(facts.problem):
        if not _is_offered(facts.problem, name, method):
            continue
        for options in (*method.run_settings(facts), *method.later_settings(facts)):
            if method.drafter(facts, options) == drafter:
                plan = method.written(facts, options)
                if OwnRounds.of(plan) == drafter:
                    return plan
    return None


def measured_here(problem: Problem) -> Problem:
    """The problem without the drafters whose acceptance can only be given.

    Heads without weights do not run here, nor do modules that the target's files do not hold.
    """
    unmeasured = {
        source
        for method in discover_methods().values()
        if isinstance(method.source_drafter, Model)
        for source in method.sources
        if not own_modules(problem)
    }
    drafts = tuple(
        draft
        for draft in problem.models.drafts
        if not is_drafter_folder(draft.path) or has_weights(draft.path)
    )
    models = problem.models.model_copy(update={"drafts": drafts})
    sources = tuple(source for source in problem.sources if source not in unmeasured)
    left = problem.model_copy(update={"models": models, "sources": sources})
    gone = {str(one) for one in {*named_drafters(problem)} - {*named_drafters(left)}}
    acceptance = {name: one for name, one in problem.acceptance.items() if name not in gone}
    return left.model_copy(update={"acceptance": acceptance})


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights that can be loaded."""
    try:
        return bool(weight_files(folder))
    except UsageError:
        return False


def own_modules(problem: Problem) -> tuple[str, ...]:
    """Roles of the target's multi-token-prediction modules that can be loaded from its files."""
    folder = problem.models.target.path
    if "mtp" not in problem.sources or is_gguf(folder) or not has_weights(folder):
        return ()
    return tuple(f"{MODULE_PREFIX}{index}" for index in range(stored_modules(folder)))


def _names_blocks(problem: Problem) -> bool:
    return any(isinstance(drafter, SkipBlocks) for drafter in problem.stated_acceptance)


def _with_sources(problem: Problem) -> Iterator[tuple[str, Method[Any]]]:
    """The methods that draft from nothing but the problem's sources."""
    for name, method in discover_methods().items():
        if set(method.sources) <= set(problem.sources):
            yield name, method


def _is_offered(problem: Problem, name: str, method: Method[Any]) -> bool:
    if problem.methods is not None:
        return name in problem.methods
    return not method.by_name or (not method.lossless and problem.limits.quality is not None)
