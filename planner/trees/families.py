"""Families of tree shapes with few numbers, as the literature gives them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from specplan.planner.trees.shape import RankPath, StaticTree, tree_of_paths
from specplan.planner.trees.table import AcceptanceTable


def expansion_tree(children: Sequence[int]) -> StaticTree:
    """Every node of depth i gets `children[i]` children, the root included.

    SpecInfer's expansion configurations (arXiv 2305.09781, section 3); full k-ary trees of d
    levels are (k,) * d. A 0 ends the tree.
    """
    paths: list[RankPath] = []
    for depth in range(1, len(children) + 1):
        paths.extend(product(*(range(count) for count in children[:depth])))
    return tree_of_paths(paths)


def separate_chains(width: int, length: int) -> StaticTree:
    """`width` x `length`: chains that part at the root, as SpecInfer's sequences."""
    return expansion_tree((width, *(1,) * (length - 1)) if length else ())


def head_table(accuracies: Sequence[Sequence[float]]) -> AcceptanceTable:
    """Heads that see nothing of each other: row d is the accuracy of head d by rank.

    The accuracy of a head's j-th choice does not depend on what the heads before it chose, so
    that a path's probability is the product over heads (Medusa, arXiv 2401.10774, section 2.3.3);
    best-first search of this table grows its trees. There are no nodes below the last head.
    """
    return AcceptanceTable.of_rows([*accuracies, [0.0]])
