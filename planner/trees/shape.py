"""Static trees of drafted tokens.

Conventions: a tree is written as `parents` and `ranks` over its drafted nodes; the root is not
counted. `parents[i]` is -1 for a child of the root, else an earlier node; `ranks[i]` is the
0-based order among siblings. Children of the root have depth 1. Nodes are in *level order*: by
depth, then by their parent's place, then by rank - the order in which `grow` ops append them.

The hazard h(depth, rank) is the probability that the child of that rank is the one accepted,
given that its parent was; siblings exclude each other (Sequoia, arXiv 2402.12374 section 3.1). The
value of a tree, F = 1 + sum over nodes of the product of hazards on the path, is the expected
number of tokens emitted per round, the bonus token included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from specplan.cost_models.formulas.closed_forms import Hazard, tree_value
from specplan.ir.types.value_types import depths_of

RankPath = tuple[int, ...]
"""A node written as the ranks on its path from the root; its length is the node's depth."""


@dataclass(frozen=True)
class StaticTree:
    """A tree shape that is known before decoding, in level order.

    Attributes:
        parents: parent of each drafted node, -1 for children of the root.
        ranks: 0-based order of each node among its siblings.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    def __len__(self) -> int:
        """Number of drafted nodes, the root not counted."""
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; children of the root have depth 1."""
        return tuple(depths_of(self.parents))

    @cached_property
    def paths(self) -> tuple[RankPath, ...]:
        """Each node as the ranks on its path from the root."""
        paths: list[RankPath] = []
        for parent, rank in zip(self.parents, self.ranks, strict=True):
            paths.append((*(paths[parent] if parent >= 0 else ()), rank))
        return tuple(paths)

    @property
    def depth(self) -> int:
        """Depth of the deepest node, 0 without nodes."""
        return max(self.depths, default=0)

    def value(self, hazard: Hazard) -> float:
        """Expected tokens per round, bonus included (Sequoia section 3.1)."""
        return tree_value(self.parents, self.ranks, hazard)

    @property
    def is_chain(self) -> bool:
        """Whether no node has a sibling."""
        return not any(self.ranks)


def tree_of_paths(paths: Sequence[RankPath]) -> StaticTree:
    """The tree with these nodes, in level order.

    Raises:
        ValueError: when a node stands without its parent or its elder sibling, or twice.
    """
    ordered = sorted(paths, key=lambda path: (len(path), path))
    index: dict[RankPath, int] = {}
    parents: list[int] = []
    for path in ordered:
        above, elder = path[:-1], (*path[:-1], path[-1] - 1)
        if path in index or (above and above not in index) or (path[-1] and elder not in index):
            raise ValueError(f"node {path} stands twice or without its parent or elder sibling")
        index[path] = len(index)
        parents.append(index[above] if above else -1)
    return StaticTree(tuple(parents), tuple(path[-1] for path in ordered))


def chain(length: int) -> StaticTree:
    """The tree that is one path of `length` nodes."""
    return StaticTree(tuple(range(-1, length - 1)), (0,) * length)


def expansion_tree(children: Sequence[int]) -> StaticTree:
    """Every node of depth i gets `children[i]` children, the root included.

    SpecInfer's expansion configurations (arXiv 2305.09781, section 3); full k-ary trees of d
    levels are (k,) * d. A 0 ends the tree.
    """
    paths: list[RankPath] = []
    for depth in range(1, len(children) + 1):
        paths.extend(product(*(range(count) for count in children[:depth])))
    return tree_of_paths(paths)


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
