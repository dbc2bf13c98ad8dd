"""What may draft in a problem, by the names that profiles bear, and what can be measured here.

A proposer is a draft by its name, what a source is called (`text`), the first layers of a model
(`target@4`), read by its own final norm and head, a model without some of its blocks
(`target-a3m4`: without the attention of layer 3 and the MLP of layer 4), or a beam of a draft model
(`draft^4`): trees in which every node that gets children gets the best four, and four nodes of a
layer do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from specplan.cost_models.shapes.drafter_shapes import is_drafter_folder
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.blocks import Skips
from specplan.planner.method import discover_methods
from specplan.planner.problem import TEXT_PROPOSER, Problem

_FIRST_LAYERS = re.compile(r"([a-z][a-z0-9_]*)@([1-9][0-9]*)")
_BEAM = re.compile(r"([a-z][a-z0-9_]*)\^([1-9][0-9]*)")
_MODEL = re.compile(r"[a-z][a-z0-9_]*")
MOST_SKIPPED_DRAFT = 8
"""Tokens that a model without some blocks drafts at most; its acceptance is measured so far."""


def first_layers(model: str, layers: int) -> str:
    """The first so many layers of a model as a proposer: `target@4`."""
    return f"{model}@{layers}"


def read_first_layers(proposer: str) -> tuple[str, int] | None:
    """Model and number of layers of such a proposer; None for other ones."""
    found = _FIRST_LAYERS.fullmatch(proposer)
    return None if found is None else (found[1], int(found[2]))


def beam_of(model: str, beam: int) -> str:
    """A model that grows trees by a beam of so many nodes as a proposer: `draft^4`."""
    return f"{model}^{beam}"


def read_beam(proposer: str) -> tuple[str, int] | None:
    """Model and beam of such a proposer; None for other ones."""
    found = _BEAM.fullmatch(proposer)
    return None if found is None else (found[1], int(found[2]))


def without(model: str, skips: Skips) -> str:
    """A model without some blocks as a proposer: `target-a3m4`."""
    return f"{model}-{skips.short}"


def read_without(proposer: str) -> tuple[str, Skips] | None:
    """Model and blocks left out of such a proposer, blocks in order; None for other ones."""
    model, dash, blocks = proposer.partition("-")
    skips = Skips.read_short(blocks) if _MODEL.fullmatch(model) and dash else None
    return None if skips is None else (model, skips)


def is_part_of_model(proposer: str) -> bool:
    """Whether it is a model's first layers, or a model without some blocks."""
    return read_first_layers(proposer) is not None or read_without(proposer) is not None


def is_derived(proposer: str) -> bool:
    """Whether it is a part of a model, or a model that grows trees by a beam."""
    return is_part_of_model(proposer) or read_beam(proposer) is not None


def leaves_blocks_out(problem: Problem) -> bool:
    """Whether a method of the problem drafts with the target without some blocks.

    To measure that takes minutes, so that beside draft models it must be asked for: by naming the
    method, or a set of blocks.
    """
    leaving = {name for name, method in discover_methods().items() if method.leaves_blocks_out}
    named = any(read_without(proposer) for proposer in problem.acceptance)
    if problem.methods is not None:
        return not leaving.isdisjoint(problem.methods)
    return named or not problem.models.drafts


def searches_blocks(problem: Problem, target: ModelShape) -> bool:
    """Whether sets of blocks to leave out are to be searched for: none is named, some may be."""
    named = any(read_without(proposer) for proposer in problem.acceptance)
    return leaves_blocks_out(problem) and not named and target.num_layers > 2


def proposers(problem: Problem, shapes: Mapping[str, ModelShape] | None = None) -> tuple[str, ...]:
    """What may draft in this problem: its drafts by name, and what its sources bring.

    Args:
        problem: the problem.
        shapes: model shapes by role, to count what its methods find in these models too.
    """
    names = [draft.name for draft in problem.models.drafts]
    for name, method in discover_methods().items():
        if method.sources and set(method.sources) <= set(problem.sources):
            names += method.source_proposers
        if shapes is not None and (problem.methods is None or name in problem.methods):
            names += method.proposers(shapes)
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
    gone = set(proposers(problem)) - set(proposers(left))
    acceptance = {name: path for name, path in problem.acceptance.items() if name not in gone}
    return left.model_copy(update={"acceptance": acceptance})
