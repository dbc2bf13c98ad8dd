"""Trees that a beam grows, stated without tensors: what the tests compare rounds with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from specplan.planner.trees import RankPath, StaticTree, tree_of_paths

Children = Callable[[RankPath], Sequence[float]]
"""Probabilities of a node's children by rank, not increasing; the root is the empty path."""
Scored = tuple[float, RankPath]
"""A node's path product and path."""


class BeamDraft(NamedTuple):
    """What a beam drafts in one context.

    Attributes:
        tree: the nodes that are verified.
        pool: nodes that were drafted, verified or not.
        layers: draft passes.
    """

    tree: StaticTree
    pool: int
    layers: int


def beam_draft(
    children: Children, beam: int, layers: int, nodes: int, least_mass: float = 0.0
) -> BeamDraft:
    """The best nodes of all that a beam drafts (EAGLE-2, arXiv 2406.16858, sections 4.1 and 4.2).

    Args:
        children: the draft model in one context.
        beam: nodes of a layer that are expanded, and children of each.
        layers: most draft passes, that of the root included.
        nodes: most verified nodes.
        least_mass: after a layer whose `beam` best nodes are reached with less probability than
            this, no other is drafted (Dynamic Depth Decoding, arXiv 2409.00142).
    """
    newest: list[Scored] = [(1.0, ())]
    pool: list[Scored] = []
    grown = 0
    while newest and grown < layers:
        grown += 1
        layer = [
            (reach * probability, (*path, rank))
            for reach, path in newest
            for rank, probability in enumerate(children(path)[:beam])
            if probability > 0.0
        ]
        pool += layer
        newest = _best(layer, beam)
        if sum(reach for reach, _ in newest) < least_mass:
            break
    return BeamDraft(tree_of_paths([path for _, path in _best(pool, nodes)]), len(pool), grown)


def _best(nodes: list[Scored], count: int) -> list[Scored]:
    """The most probable nodes; ties go to the shallower, then to the lexically smaller path."""
    return sorted(nodes, key=lambda node: (-node[0], len(node[1]), node[1]))[:count]
