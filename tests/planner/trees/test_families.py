"""Families of shapes with few numbers: goldens of the papers."""

from __future__ import annotations

import itertools

import pytest

from specplan.planner.trees import (
    chain,
    expansion_tree,
    tree_of_paths,
)
from tests.planner.trees.tables import separate_chains, vector


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
