"""Families of shapes with few numbers: goldens of the papers."""

from __future__ import annotations

import itertools

import pytest

from specplan.planner.trees import (
    chain,
    expansion_tree,
    head_table,
    search_trees,
    separate_chains,
    tree_of_paths,
)
from tests.planner.trees.laws import vector


def test_the_default_expansion_of_specinfer() -> None:
    # arXiv 2305.09781, <1,1,3,1,1,1,1,1>: 21 nodes, the root included; an 8-chain beside it
    tree, table = expansion_tree((1, 1, 3, 1, 1, 1, 1, 1)), vector(0.6, 0.2, 0.1)
    assert len(tree) == 20
    assert tree.value(table) == pytest.approx(2.732209, abs=5e-7)
    assert chain(8).value(table) == pytest.approx(2.474806, abs=5e-7)


def test_expansions_by_hand() -> None:
    assert expansion_tree(()) == chain(0) == expansion_tree((0, 3))
    assert expansion_tree((2, 2)).parents == (-1, -1, 0, 0, 1, 1)
    assert expansion_tree((1, 1, 1)) == chain(3)


def test_separate_chains() -> None:
    # k = 3 sequences of depth 4, p = [.6, .2, .1]: 2.9584 (bound 3.25)
    tree = separate_chains(3, 4)
    assert tree.value(vector(0.6, 0.2, 0.1)) == pytest.approx(2.9584)
    paths = [(k, *(0,) * d) for k, d in itertools.product(range(3), range(4))]
    assert tree == tree_of_paths(paths)
    assert separate_chains(1, 5) == chain(5) and separate_chains(3, 0) == chain(0)


def test_golden_product_trees_of_heads() -> None:
    # Medusa, arXiv 2401.10774: value without the bonus
    table = head_table([[0.6, 0.15, 0.08], [0.45, 0.12, 0.07], [0.3, 0.1, 0.06]])
    search = search_trees(table, 63, 5)
    for nodes, value in ((3, 1.02), (6, 1.253), (10, 1.4255)):
        assert search.values[5, nodes] - 1 == pytest.approx(value)
    assert set(search.tree(3, 5).paths) == {(0,), (1,), (0, 0)}
    # three heads of three choices each: no more than 3 + 9 + 27 nodes, however deep one asks
    assert len(search.tree(63, 5)) == 39 and search.tree(63, 5).depth == 3
