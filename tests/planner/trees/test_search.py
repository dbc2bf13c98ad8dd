"""Best trees of all sizes and depths: exhaustive enumeration, the published programme, goldens."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sequoia_demo import DEMO
from specplan.ir.errors import UsageError
from specplan.planner.trees import AcceptanceTable, OrderedSearch, programme, search_trees
from specplan.planner.trees.programme import ProgrammeSearch
from tests.planner.trees.tables import (
    best_first_tree,
    ordered_rows,
    ordered_trees,
    path_sum,
    published_programme,
    rows,
    vector,
)

NODES, DEPTH = 5, 3


def _enumerated(table: AcceptanceTable) -> np.ndarray:
    """Best values by depth limit and nodes, over every tree."""
    best = np.ones((DEPTH + 1, NODES + 1))
    for depth in range(DEPTH + 1):
        for nodes in range(1, NODES + 1):
            ranks = table.hazards.shape[1]
            sums = [path_sum(table, paths) for paths in ordered_trees(nodes, ranks, depth)]
            best[depth, nodes] = max([best[depth, nodes - 1], *sums])
    return best


def sharpened(always: bool) -> Any:
    """What the programme leaves out in large searches only, left out in small ones too."""
    return patch.object(programme, "_SHARPENED", -1 if always else programme._SHARPENED)


@settings(max_examples=60)
@given(rows(), st.booleans())
def test_the_programme_equals_exhaustive_enumeration(
    table: list[list[float]], always: bool
) -> None:
    search = ProgrammeSearch(AcceptanceTable.of_rows(table), NODES, DEPTH)
    with sharpened(always):
        _ = search.values
    assert np.allclose(search.values, _enumerated(search.table), rtol=0, atol=1e-12)


@settings(max_examples=40)
@given(ordered_rows())
def test_best_first_equals_exhaustive_enumeration(table: list[list[float]]) -> None:
    search = OrderedSearch(AcceptanceTable.of_rows(table), NODES, DEPTH)
    assert np.allclose(search.values, _enumerated(search.table), rtol=0, atol=1e-12)


@settings(max_examples=100)
@given(rows(ranks=6, depths=1), st.integers(1, 24), st.booleans())
def test_the_programme_equals_the_published_one(
    table: list[list[float]], size: int, always: bool
) -> None:
    search = ProgrammeSearch(AcceptanceTable.of_rows(table), size - 1, 5)
    with sharpened(always):
        _ = search.values
    published = np.array(published_programme(table[0], size, 6))[1:, 1:]
    # the published one asks for exactly so many nodes, which may be more than fit
    published = np.maximum.accumulate(published, axis=1)
    assert np.allclose(search.values, published, rtol=0, atol=1e-12)


@settings(max_examples=100)
@given(rows(ranks=12, depths=4), st.integers(0, 60), st.integers(0, 9))
def test_a_traced_tree_has_the_value_and_keeps_the_limits(
    table: list[list[float]], nodes: int, depth: int
) -> None:
    search = search_trees(AcceptanceTable.of_rows(table), nodes, depth)
    for some_nodes, some_depth in ((nodes, depth), (nodes // 2, depth), (nodes, depth // 2)):
        tree = search.tree(some_nodes, some_depth)
        assert len(tree) <= some_nodes and tree.depth <= some_depth
        expected = search.values[some_depth, some_nodes]
        assert tree.value(search.table) == pytest.approx(expected, abs=1e-9)
        assert all(reach > 0 for reach in _last_reach(search.table, tree.parents, tree.ranks))


def _last_reach(
    table: AcceptanceTable, parents: tuple[int, ...], ranks: tuple[int, ...]
) -> list[float]:
    """Reach of the youngest children without children of their own: none is worthless."""
    reach: list[float] = []
    depths: list[int] = []
    for parent, rank in zip(parents, ranks, strict=True):
        depths.append(1 if parent < 0 else depths[parent] + 1)
        reach.append((1.0 if parent < 0 else reach[parent]) * table(depths[-1], rank))
    youngest = dict(zip(parents, range(len(parents)), strict=True))
    return [reach[node] for node in youngest.values() if node not in parents]


@settings(max_examples=60)
@given(ordered_rows(ranks=8, depths=3), st.integers(0, 60), st.integers(0, 8))
def test_all_three_searches_agree_where_hazards_are_ordered(
    table: list[list[float]], nodes: int, depth: int
) -> None:
    accepted = AcceptanceTable.of_rows(table)
    ordered = OrderedSearch(accepted, nodes, depth)
    programme = ProgrammeSearch(accepted, nodes, depth)
    assert np.allclose(ordered.values, programme.values, rtol=0, atol=1e-9)
    assert ordered.tree(nodes, depth) == best_first_tree(accepted, nodes, depth)


@settings(max_examples=60)
@given(rows(ranks=5, depths=2), st.integers(1, 30), st.integers(1, 6))
def test_values_grow_with_every_limit(table: list[list[float]], nodes: int, depth: int) -> None:
    values = search_trees(AcceptanceTable.of_rows(table), nodes, depth).values
    assert (np.diff(values, axis=0) >= -1e-12).all() and (np.diff(values, axis=1) >= -1e-12).all()
    assert (values[0] == 1.0).all() and (values[:, 0] == 1.0).all()


@settings(max_examples=60)
@given(rows(ranks=5, depths=2), st.integers(1, 40), st.integers(1, 6), st.integers(0, 20))
def test_a_larger_search_holds_the_smaller_one(
    table: list[list[float]], nodes: int, depth: int, more: int
) -> None:
    accepted = AcceptanceTable.of_rows(table)
    small = search_trees(accepted, nodes, depth)
    large = search_trees(accepted, nodes + more, depth + more % 4)
    assert np.allclose(large.values[: depth + 1, : nodes + 1], small.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("rates", "values"),
    [  # Sequoia's dynamic programme without a limit of depth; sizes count the root
        ((0.6, 0.2, 0.1), (1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456)),
        ((1.0, 0.0), (1, 2, 3, 4, 5, 6, 7, 8)),
        ((0.0, 0.0), (1, 1, 1, 1)),
        ((0.5, 0.5), (1, 1.5, 2, 2.25, 2.5, 2.75, 3, 3.125)),
    ],
)
@pytest.mark.parametrize("search", [OrderedSearch, ProgrammeSearch])
def test_golden_values(
    search: type[OrderedSearch] | type[ProgrammeSearch],
    rates: tuple[float, ...],
    values: tuple[float, ...],
) -> None:
    nodes = len(values) - 1
    value = search(vector(*rates), nodes, nodes).values[nodes]
    assert value == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("search", [OrderedSearch, ProgrammeSearch])
def test_golden_values_with_limited_levels(
    search: type[OrderedSearch] | type[ProgrammeSearch],
) -> None:
    values = search(vector(0.6, 0.2, 0.1), 5, 2).values
    assert values[1, 1:4] == pytest.approx((1.6, 1.8, 1.9), abs=1e-12)
    assert (values[2, 3], values[2, 5]) == pytest.approx((2.16, 2.4), abs=1e-12)


def test_golden_values_of_the_demo_vector() -> None:
    # (size, levels), the root counted in both; four decimals in the source
    golden = {(8, 6): 2.7322, (16, 8): 3.1303, (32, 9): 3.5007, (64, 10): 3.8523}
    golden |= {(128, 6): 3.9577, (128, 7): 4.0855, (128, 8): 4.1512, (128, 9): 4.1793}
    golden[128, 10] = 4.1921
    search = search_trees(vector(*DEMO), 127, 9)
    assert isinstance(search, ProgrammeSearch)
    for (size, levels), value in golden.items():
        assert search.values[levels - 1, size - 1] == pytest.approx(value, abs=5.1e-5)
        assert search.tree(size - 1, levels - 1).value(search.table) == pytest.approx(
            search.values[levels - 1, size - 1], abs=1e-12
        )


def test_a_poor_rank_is_taken_for_the_good_one_behind_it() -> None:
    search = search_trees(vector(0.3, 0.0, 0.6), 4, 2)
    assert search.tree(2, 2).ranks == (0, 0)
    assert search.values[2].tolist() == pytest.approx([1.0, 1.3, 1.39, 1.9, 2.08])
    assert search.tree(3, 2).ranks == (0, 1, 2)
    assert search.tree(4, 2).parents == (-1, -1, -1, 2)


def test_a_large_search_leaves_out_nothing_that_counts() -> None:
    noisy = np.random.default_rng(0).permutation(DEMO).tolist()
    for table in (vector(*DEMO), vector(*noisy), AcceptanceTable.of_rows([DEMO, noisy, DEMO])):
        tables = []
        for always in (True, False):
            search = ProgrammeSearch(table, 300, 6)
            with sharpened(always):
                tables.append(search.values)
        assert np.allclose(*tables, rtol=0, atol=1e-12)


def test_ties_go_to_fewer_children_and_shallower_nodes() -> None:
    assert OrderedSearch(vector(0.5, 0.5), 6, 3).tree(6, 3).parents == (-1, -1, 0, 0, 1, 1)
    assert OrderedSearch(vector(0.5, 0.25), 2, 3).tree(2, 3).parents == (-1, -1)
    assert ProgrammeSearch(vector(0.5, 0.25), 2, 3).tree(2, 3).parents == (-1, 0)


def test_no_worthless_node_is_drafted() -> None:
    for table in (vector(0.0, 0.0), vector(0.5, 0.0), vector(0.0, 0.5)):
        for search in (OrderedSearch(table, 6, 1), ProgrammeSearch(table, 6, 1)):
            if table.is_ordered or isinstance(search, ProgrammeSearch):
                expected = {0.0: 0, 0.5: 1}[table(1, 0)] or 2 * bool(table(1, 1))
                assert len(search.tree(6, 1)) == expected


def test_the_widest_levels_may_be_limited() -> None:
    table = vector(0.5, 0.4)
    narrow = OrderedSearch(table, 12, 4, expand=1)
    assert narrow.tree(12, 4).parents == (-1, -1, 0, 0, 2, 2, 4, 4)
    assert narrow.widths(4)[:, 12].tolist() == [1, 1, 1, 1]
    assert OrderedSearch(table, 12, 4).widths(4)[:, 12].tolist() == [1, 2, 3, 0]


@settings(max_examples=30)
@given(ordered_rows(ranks=3), st.integers(1, 2))
def test_limited_levels_equal_exhaustive_enumeration(table: list[list[float]], expand: int) -> None:
    search = OrderedSearch(AcceptanceTable.of_rows(table), NODES, DEPTH, expand)
    ranks, best = search.table.hazards.shape[1], 1.0
    for nodes in range(1, NODES + 1):
        for paths in ordered_trees(nodes, ranks, DEPTH):
            parents = {path[:-1] for path in paths}
            widths = [sum(len(parent) == depth for parent in parents) for depth in range(DEPTH)]
            if max(widths) <= expand:
                best = max(best, path_sum(search.table, paths))
        assert search.values[DEPTH, nodes] == pytest.approx(best, abs=1e-12)


@settings(max_examples=60)
@given(ordered_rows(ranks=6), st.integers(1, 30), st.integers(1, 6), st.integers(1, 4))
def test_widths_are_those_of_the_traced_trees(
    table: list[list[float]], nodes: int, depth: int, expand: int
) -> None:
    for limit in (None, expand):
        search = OrderedSearch(AcceptanceTable.of_rows(table), nodes, depth, limit)
        widths = search.widths(depth)
        for size in (nodes, nodes // 2):
            tree = search.tree(size, depth)
            parents = [tree.depths[p] if p >= 0 else 0 for p in set(tree.parents)]
            assert widths[:, size].tolist() == [parents.count(d) for d in range(depth)]


def test_impossible_limits_and_tables_are_refused() -> None:
    with pytest.raises(UsageError):
        search_trees(vector(0.5), -1, 2)
    for table in ([], [[]], [[0.5, 1.5]], [[-0.1]], [[float("nan")]]):
        with pytest.raises(UsageError):
            AcceptanceTable.of_rows(table)


def test_a_table_knows_its_rows() -> None:
    table = AcceptanceTable.of_rows([[0.5, 0.25, 0.1], [0.4]])
    assert table.is_ordered and not vector(0.1, 0.2).is_ordered
    assert [table(1, 2), table(1, 3), table(2, 0), table(2, 1), table(9, 0)] == [
        0.1, 0.0, 0.4, 0.0, 0.4,
    ]  # fmt: skip
    again = AcceptanceTable.of_hazard(table, 5, 4)
    assert again.hazards.tolist() == [[0.5, 0.25, 0.1, 0.0], [0.4, 0.0, 0.0, 0.0]]
