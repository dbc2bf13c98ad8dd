"""Static trees of drafted tokens: which shape is worth most, and how a plan grows it.

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

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

Hazard = Callable[[int, int], float]
"""(depth >= 1, rank >= 0) -> probability."""

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
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Depth of the deepest node, 0 without nodes."""
        return max(self.depths, default=0)

    def value(self, hazard: Hazard) -> float:
        """Expected tokens per round, bonus included (Sequoia section 3.1)."""
        reached: list[float] = []
        for parent, rank, depth in zip(self.parents, self.ranks, self.depths, strict=True):
            above = 1.0 if parent < 0 else reached[parent]
            reached.append(above * hazard(depth, rank))
        return 1.0 + sum(reached)

    @property
    def is_chain(self) -> bool:
        """Whether no node has a sibling."""
        return not any(self.ranks)


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
    return taken


def best_first_tree(hazard: Hazard, nodes: int, depth: int) -> StaticTree:
    """The tree of at most `nodes` nodes and `depth` levels with the largest value.

    Exact when hazards do not increase with rank (see `best_first_paths`).
    """
    return tree_of_paths(best_first_paths(hazard, nodes, depth))


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


def non_increasing(hazard: Hazard, ranks: int) -> Hazard:
    """The same hazards made non-increasing in rank, by the least one so far.

    Measured rates of neighbouring high ranks may cross by noise; best-first growth needs them
    ordered. From rank `ranks` on the hazard is 0.
    """
    table: dict[int, list[float]] = {}

    def ordered(depth: int, rank: int) -> float:
        if rank >= ranks:
            return 0.0
        row = table.setdefault(depth, [])
        while len(row) <= rank:
            least = row[-1] if row else 1.0
            row.append(min(least, hazard(depth, len(row))))
        return row[rank]

    return ordered
