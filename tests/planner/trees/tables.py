"""Acceptance tables and plain statements that the tree tests compare with."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from specplan.cost_models.formulas.closed_forms import Hazard
from specplan.planner.trees import (
    AcceptanceTable,
    GrowLevel,
    RankPath,
    RoundTimes,
    StaticTree,
    expansion_tree,
    tree_of_paths,
)


def vector(*rates: float) -> AcceptanceTable:
    """Hazards that depend on the rank alone."""
    return AcceptanceTable.of_rows([rates])


def ordered_trees(nodes: int, ranks: int, depth: int) -> Iterator[tuple[RankPath, ...]]:
    """Every ordered tree with that many drafted nodes, as the set of its rank paths."""
    seen = {frozenset[RankPath]()}
    for _ in range(nodes):
        grown = set()
        for paths in seen:
            for above in (*paths, ()):
                count = sum(1 for p in paths if len(p) == len(above) + 1 and p[:-1] == above)
                if count < ranks and len(above) < depth:
                    grown.add(paths | {(*above, count)})
        seen = grown
    return (tuple(paths) for paths in seen)


def path_sum(table: AcceptanceTable, paths: Sequence[RankPath]) -> float:
    """1 + the sum of all path products, node by node."""
    total = 1.0
    for path in paths:
        product = 1.0
        for depth, rank in enumerate(path, start=1):
            product *= table(depth, rank)
        total += product
    return total


def published_programme(rates: Sequence[float], size: int, levels: int) -> list[list[float]]:
    """Best values by exact size and levels, the root counted: formulas of arXiv 2402.12374, 3.2."""
    never = float("-inf")
    shape = range(len(rates) + 1)
    table = [[[never for _ in shape] for _ in range(levels + 1)] for _ in range(size + 1)]
    for level in range(1, levels + 1):
        table[1][level][0] = 1.0
    for m in range(2, size + 1):
        for level in range(2, levels + 1):
            for b, rate in enumerate(rates, start=1):
                table[m][level][b] = max(
                    table[m - y][level][b - 1] + rate * max(table[y][level - 1])
                    if max(table[y][level - 1]) > never
                    else never
                    for y in range(1, m)
                )
    return [[max(table[m][level]) for m in range(size + 1)] for level in range(levels + 1)]


def best_first_tree(hazard: Hazard, nodes: int, depth: int) -> StaticTree:
    """The most probable nodes, one at a time from a heap; best where hazards fall with rank.

    Ties go to the shallower, then to the lexically smaller path.
    """
    taken: list[RankPath] = []
    heap: list[tuple[float, int, RankPath, float]] = []

    def push(path: RankPath, above: float) -> None:
        probability = above * hazard(len(path), path[-1])
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
    return tree_of_paths(taken)


def tree_of_levels(levels: Sequence[GrowLevel]) -> StaticTree:
    """The tree that these `grow` ops append; the inverse of `grow_levels`."""
    parents: list[int] = []
    ranks: list[int] = []
    above = [-1]
    for level in levels:
        first = len(parents)
        for index, count in zip(level.expand, level.children, strict=True):
            parents.extend([above[index]] * count)
            ranks.extend(range(count))
        above = list(range(first, len(parents)))
    return StaticTree(tuple(parents), tuple(ranks))


def separate_chains(width: int, length: int) -> StaticTree:
    """`width` x `length`: chains that part at the root, as SpecInfer's sequences."""
    return expansion_tree((width, *(1,) * (length - 1)) if length else ())


def listed_times(
    verify: dict[int, float], draft: Sequence[float], overhead: float = 0.0
) -> RoundTimes:
    """From times of some sizes only; all others are never chosen."""
    seconds = np.full(max(verify) + 1, np.inf)
    for nodes, taken in verify.items():
        seconds[nodes] = taken
    return RoundTimes(seconds, np.array(draft), overhead)


# A few values that repeat make ties, zeros and ascents likely.
hazards = st.one_of(st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.25, 0.5, 1.0]), st.floats(1e-3, 1.0))


def rows(ranks: int = 4, depths: int = 3) -> st.SearchStrategy[list[list[float]]]:
    """Tables in any order of hazards."""
    row = st.lists(hazards, min_size=1, max_size=ranks)
    return st.lists(row, min_size=1, max_size=depths)


def ordered_rows(ranks: int = 4, depths: int = 3) -> st.SearchStrategy[list[list[float]]]:
    """Tables that do not increase with rank."""
    return rows(ranks, depths).map(lambda table: [sorted(row, reverse=True) for row in table])
