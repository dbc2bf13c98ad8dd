"""Acceptance laws and plain statements that the tree tests compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from specplan.planner.trees import AcceptanceTable, RankPath


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


# A few values that repeat make ties, zeros and ascents likely.
hazards = st.one_of(st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.25, 0.5, 1.0]), st.floats(1e-3, 1.0))


def rows(ranks: int = 4, depths: int = 3) -> st.SearchStrategy[list[list[float]]]:
    """Tables in any order of hazards."""
    row = st.lists(hazards, min_size=1, max_size=ranks)
    return st.lists(row, min_size=1, max_size=depths)


def ordered_rows(ranks: int = 4, depths: int = 3) -> st.SearchStrategy[list[list[float]]]:
    """Tables that do not increase with rank."""
    return rows(ranks, depths).map(lambda table: [sorted(row, reverse=True) for row in table])
