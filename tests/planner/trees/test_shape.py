"""Static trees: golden values of the literature, and equality with exhaustive enumeration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.formulas.closed_forms import Hazard
from specplan.planner.trees import (
    AcceptanceTable,
    GrowLevel,
    StaticTree,
    chain,
    grow_levels,
    search_trees,
    tree_of_paths,
)
from tests.planner.trees.tables import tree_of_levels


def vector(*rates: float) -> Hazard:
    """Hazards that depend on the rank alone."""
    return lambda depth, rank: rates[rank] if rank < len(rates) else 0.0


def table(rows: list[list[float]]) -> Hazard:
    """Hazards by depth (from 1) and rank."""

    def hazard(depth: int, rank: int) -> float:
        row = rows[min(depth, len(rows)) - 1]
        return row[rank] if rank < len(row) else 0.0

    return hazard


def best_tree(hazard: Hazard, nodes: int, depth: int) -> StaticTree:
    """The best tree of at most so many nodes and levels."""
    accepted = AcceptanceTable.of_hazard(hazard, max(depth, 1), max(nodes, 1))
    return search_trees(accepted, nodes, depth).tree(nodes, depth)


def ordered_trees(nodes: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every ordered tree with that many drafted nodes, as the set of its rank paths."""
    seen = {frozenset[tuple[int, ...]]()}
    for _ in range(nodes):
        grown = set()
        for paths in seen:
            for above in (*paths, ()):
                count = sum(1 for p in paths if len(p) == len(above) + 1 and p[:-1] == above)
                grown.add(paths | {(*above, count)})
        seen = grown
    return (tuple(paths) for paths in seen)


def test_the_enumeration_counts_catalan_numbers() -> None:
    counts = [sum(1 for _ in ordered_trees(n)) for n in range(7)]
    assert counts == [1, 1, 2, 5, 14, 42, 132]


@pytest.mark.parametrize(
    ("rates", "values"),
    [  # Sequoia's dynamic programme; sizes count the root
        ((0.6, 0.2, 0.1), (1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456)),
        ((1.0, 0.0), (1, 2, 3, 4, 5, 6, 7, 8)),
        ((0.0, 0.0), (1, 1, 1, 1)),
        ((0.5, 0.5), (1, 1.5, 2, 2.25, 2.5, 2.75, 3, 3.125)),
    ],
)
def test_golden_values_without_depth_limit(
    rates: tuple[float, ...], values: tuple[float, ...]
) -> None:
    hazard = vector(*rates)
    computed = [best_tree(hazard, n, 64).value(hazard) for n in range(len(values))]
    assert computed == pytest.approx(values, abs=1e-9)


@pytest.mark.parametrize(
    ("nodes", "depth", "value"),
    [(1, 1, 1.6), (2, 1, 1.8), (3, 1, 1.9), (3, 2, 2.16), (5, 2, 2.4)],
)
def test_golden_values_with_depth_limit(nodes: int, depth: int, value: float) -> None:
    # Sequoia counts the root in both numbers: (n, levels) there is (nodes + 1, depth + 1).
    hazard = vector(0.6, 0.2, 0.1)
    tree = best_tree(hazard, nodes, depth)
    assert tree.depth <= depth
    assert tree.value(hazard) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("nodes", "value"), [(1, 0.6), (2, 0.96), (3, 1.26), (4, 1.476), (6, 1.836), (8, 2.0736)]
)
def test_golden_values_of_opt_tree(nodes: int, value: float) -> None:
    # arXiv 2406.17276 with q = (.6, .3, .1) at every node: accepted tokens, the bonus not counted.
    hazard = vector(0.6, 0.3, 0.1)
    assert best_tree(hazard, nodes, 64).value(hazard) - 1 == pytest.approx(value)


def test_golden_values_of_medusa() -> None:
    # Product trees of per-head accuracies (Medusa, arXiv 2401.10774).
    hazard = table([[0.6, 0.15, 0.08], [0.45, 0.12, 0.07], [0.3, 0.1, 0.06]])
    for nodes, value in ((3, 1.02), (6, 1.253), (10, 1.4255)):
        assert best_tree(hazard, nodes, 3).value(hazard) - 1 == pytest.approx(value)
    assert set(best_tree(hazard, 3, 3).paths) == {(0,), (1,), (0, 0)}


rates = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3).map(
    lambda row: sorted([rate / len(row) for rate in row], reverse=True)
)


@settings(max_examples=60)
@given(st.lists(rates, min_size=1, max_size=4), st.integers(0, 6), st.integers(0, 4))
def test_best_first_equals_exhaustive_enumeration(
    rows: list[list[float]], nodes: int, depth: int
) -> None:
    hazard = table(rows)
    best = max(
        tree_of_paths(paths).value(hazard)
        for size in range(nodes + 1)
        for paths in ordered_trees(size)
        if max(map(len, paths), default=0) <= depth
    )
    tree = best_tree(hazard, nodes, depth)
    assert tree.depth <= depth and len(tree) <= nodes
    assert tree.value(hazard) == pytest.approx(best, abs=1e-12)


@settings(max_examples=60)
@given(st.lists(rates, min_size=1, max_size=4), st.integers(0, 40), st.integers(1, 8))
def test_levels_are_an_inverse_of_the_tree(rows: list[list[float]], nodes: int, depth: int) -> None:
    tree = best_tree(table(rows), nodes, depth)
    levels = grow_levels(tree)
    assert tree_of_levels(levels) == tree
    assert len(levels) == tree.depth
    assert sum(level.nodes for level in levels) == len(tree)
    assert all(parent < node for node, parent in enumerate(tree.parents))


def test_ties_are_broken_the_same_way_everywhere() -> None:
    paths = best_tree(vector(0.5, 0.5), 6, 3).paths
    assert paths == ((0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))


def test_levels_of_the_design_sketch() -> None:
    # "Static Sequoia tree" of the plan language: 3 children, then [2, 1], then 2.
    levels = (GrowLevel((0,), (3,)), GrowLevel((0, 1), (2, 1)), GrowLevel((0,), (2,)))
    tree = tree_of_levels(levels)
    assert tree.parents == (-1, -1, -1, 0, 0, 1, 3, 3)
    assert tree.ranks == (0, 1, 2, 0, 1, 0, 0, 1)
    assert grow_levels(tree) == levels


def test_a_chain_is_a_tree() -> None:
    assert chain(3) == StaticTree((-1, 0, 1), (0, 0, 0))
    assert chain(0) == StaticTree((), ())
    assert chain(4).is_chain and chain(4).depth == 4
    assert chain(2).value(vector(0.5)) == 1.75
    assert grow_levels(chain(2)) == (GrowLevel((0,), (1,)), GrowLevel((0,), (1,)))


def test_an_unclosed_or_unordered_tree_is_refused() -> None:
    for paths in ([(1,)], [(0, 0)], [(0,), (0,)]):
        with pytest.raises(ValueError):
            tree_of_paths(paths)
    with pytest.raises(ValueError):
        grow_levels(StaticTree((-1, 0, -1), (0, 0, 1)))
