"""Best-first growth, one node at a time, of any law of acceptance that is ordered by rank."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from specplan.planner.trees.drafted import Children
from specplan.planner.trees.shape import Hazard, RankPath, StaticTree, tree_of_paths


def best_first_paths(hazard: Hazard, nodes: int, depth: int) -> list[RankPath]:
    """The `nodes` most probable nodes, best first; every prefix is the best tree of its size.

    Exact when hazards do not increase with rank: then a node is never more probable than its
    parent or its elder sibling, so that the most probable nodes are closed under both and their
    sum is the largest possible (the argument of OPT-Tree, arXiv 2406.17276, for ordered trees;
    equal to Sequoia's dynamic programme). Ties go to the shallower, then to the lexically
    smaller path, so that the result is the same everywhere.

    Args:
        hazard: probability by depth and rank, in [0, 1]; 0 ends the siblings.
        nodes: most drafted nodes.
        depth: deepest level.

    Returns:
        At most `nodes` paths; fewer when no node with a positive probability is left.
    """
    return _best_first(lambda path: hazard(len(path), path[-1]), nodes, depth)


def _best_first(chance: Callable[[RankPath], float], nodes: int, depth: int) -> list[RankPath]:
    """The most probable nodes by a chance of each, given its parent."""
    taken: list[RankPath] = []
    heap: list[tuple[float, int, RankPath, float]] = []

    def push(path: RankPath, above: float) -> None:
        probability = above * chance(path)
        if probability > 0.0:
            heapq.heappush(heap, (-probability, len(path), path, above))

    if nodes > 0 and depth > 0:
        push((0,), 1.0)
    while heap and len(taken) < nodes:
        negative, level, path, above = heapq.heappop(heap)
        taken.append(path)
        push((*path[:-1], path[-1] + 1), above)
        if level < depth:
            push((*path, 0), -negative)
    return taken


def best_first_tree(hazard: Hazard, nodes: int, depth: int) -> StaticTree:
    """The tree of at most `nodes` nodes and `depth` levels with the largest value.

    Exact when hazards do not increase with rank (see `best_first_paths`).
    """
    return tree_of_paths(best_first_paths(hazard, nodes, depth))


def best_in_context(law: Children, nodes: int, depth: int) -> StaticTree:
    """The tree of at most so many nodes and levels with the most accepted tokens in one context.

    No policy drafts a better one there; it takes knowing the law of nodes that were not drafted.
    """

    def chance(path: RankPath) -> float:
        row = law(path[:-1])
        return row[path[-1]] if path[-1] < len(row) else 0.0

    return tree_of_paths(_best_first(chance, nodes, depth))
