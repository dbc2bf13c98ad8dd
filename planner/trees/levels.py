"""How a plan grows a static tree: one `grow` op per level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specplan.planner.trees.shape import StaticTree


@dataclass(frozen=True)
class GrowLevel:
    """One `grow` op: which of the newest nodes get children, and how many each.

    Attributes:
        expand: indices among the newest nodes (those of the level above; the root for the first
            level), ascending.
        children: number of children of each of them, at least 1.
    """

    expand: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """Number of nodes that this level adds."""
        return sum(self.children)


def grow_levels(tree: StaticTree) -> tuple[GrowLevel, ...]:
    """How a plan grows the tree: one level after the other.

    Raises:
        ValueError: when the nodes are not in level order.
    """
    levels: list[GrowLevel] = []
    first, above = 0, [-1]
    while first < len(tree):
        depth = tree.depths[first]
        members = [i for i in range(first, len(tree)) if tree.depths[i] == depth]
        if members != list(range(first, first + len(members))):
            raise ValueError("the nodes are not in level order")
        counts = [sum(1 for i in members if tree.parents[i] == parent) for parent in above]
        grown = [(a, k) for a, count in enumerate(counts) for k in range(count)]
        actual = [(above.index(tree.parents[i]), tree.ranks[i]) for i in members]
        if grown != actual:
            raise ValueError("the nodes are not in level order")
        expand = tuple(a for a, count in enumerate(counts) if count)
        levels.append(GrowLevel(expand, tuple(counts[a] for a in expand)))
        first, above = first + len(members), members
    return tuple(levels)


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
