"""The best trees of every size and depth, whatever the table.

Where no hazard is larger than that of its elder sibling, best-first search goes level by level: a
node is never more probable than its parent or its elder sibling, so that the n most probable nodes
of at most d levels are closed under both. They are a tree, and no other tree of n nodes and d
levels sums to more (the argument of OPT-Tree, arXiv 2406.17276, section 3, for ordered trees; equal
to Sequoia's dynamic programme). One pass down the levels therefore gives every size and every
depth: the best n nodes among the first d levels are merged from those among the first d - 1 and
the next level's. Ties go to the shallower, then to the lexically smaller path.

Other tables need the dynamic programme of `programme`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import UsageError
from specplan.planner.trees.programme import ProgrammeSearch
from specplan.planner.trees.shape import StaticTree
from specplan.planner.trees.table import AcceptanceTable, Array

Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes of one depth that belong to some best tree, by path.

    Attributes:
        reach: probability that a node is accepted.
        index: parent's place in the level above, times `ranks`, plus the rank.
        ranks: ranks that were looked at.
    """

    reach: Array
    index: Index
    ranks: int


@dataclass(frozen=True, eq=False)
class OrderedSearch:
    """The best trees of every size and depth limit, for an ordered table.

    Attributes:
        table: acceptance, non-increasing in rank.
        nodes: most drafted nodes.
        depth: most levels.
        expand: most nodes of one level that get children, None for any number. The most
            probable nodes of a level are then the ones that do; since all nodes of a level
            offer the same hazards, no other choice of as many gives a better tree.
    """

    table: AcceptanceTable
    nodes: int
    depth: int
    expand: int | None = None

    @cached_property
    def values(self) -> Array:
        """Tokens per round, bonus included, [depth limit, nodes], both from 0."""
        return self._searched[0]

    @property
    def levels(self) -> list[Level]:
        """The nodes that belong to some best tree, by depth from 1."""
        return self._searched[1]

    @cached_property
    def _searched(self) -> tuple[Array, list[Level]]:
        nodes = self.nodes
        levels: list[Level] = []
        best = np.zeros((self.depth + 1, nodes))  # ascending: the least of the best comes first
        reach, least = np.ones(1), 0.0
        for depth in range(1, self.depth + 1 if nodes else 1):
            # the first path is the most probable one; ties with `nodes` shallower nodes come last
            row = self.table.row(depth)
            ranks = int(np.count_nonzero(row * reach[0] > least))
            offered = (reach[:, None] * row[:ranks]).ravel()
            places = np.flatnonzero(offered > least)
            if not len(places):
                best[depth:] = best[depth - 1]
                break
            reach = offered[places]
            merged = np.concatenate((best[depth - 1], reach))
            merged.sort()
            best[depth] = merged[-nodes:]
            least = best[depth, 0]
            if len(reach) > 2 * nodes:
                useful = reach >= least
                reach, places = reach[useful], places[useful]
            levels.append(Level(reach, places, ranks))
            if self.expand is not None and len(reach) > self.expand:
                reach = _only_largest(reach, self.expand)
        values = np.ones((self.depth + 1, nodes + 1))
        np.cumsum(best[:, ::-1], axis=1, out=values[:, 1:])
        values[:, 1:] += 1.0
        return values, levels

    def size(self, depth: int) -> int:
        """Nodes of the largest tree of at most so many levels; more would be worth nothing."""
        return min(self.nodes, sum(len(level.reach) for level in self.levels[:depth]))

    def tree(self, nodes: int, depth: int) -> StaticTree:
        """The best tree of at most so many nodes and levels."""
        levels = self.levels[:depth]
        if not levels or not nodes:
            return StaticTree((), ())
        order = self._best_first(levels)[:nodes]
        order.sort()
        starts = np.cumsum([0, *(len(level.index) for level in levels[:-1])])
        depths = np.searchsorted(starts, order, side="right") - 1
        index = np.concatenate([level.index for level in levels])[order]
        ranks = np.array([level.ranks for level in levels])[depths]
        parents = np.searchsorted(order, starts[depths - 1] + index // ranks)
        parents[depths == 0] = -1
        return StaticTree(tuple(parents.tolist()), tuple((index % ranks).tolist()))

    @staticmethod
    def _best_first(levels: list[Level]) -> Index:
        """Places of all nodes of the levels, the most probable first."""
        return np.argsort(-np.concatenate([level.reach for level in levels]), kind="stable")

    def widths(self, depth: int) -> NDArray[np.intp]:
        """Nodes with children per depth, of the best tree of every size.

        Args:
            depth: most levels of the trees.

        Returns:
            [depth, nodes]: row k counts the nodes of depth k (the root: 0) that get children,
            which is how many of depth k + 1 have rank 0.
        """
        levels = self.levels[:depth]
        widths = np.zeros((depth, self.nodes + 1), dtype=np.intp)
        if not levels or not self.nodes:
            return widths
        order = self._best_first(levels)[: self.nodes]
        depths = np.repeat(np.arange(len(levels)), [len(level.index) for level in levels])[order]
        first = (np.concatenate([level.index % level.ranks for level in levels]) == 0)[order]
        counted = np.cumsum((depths == np.arange(len(levels))[:, None]) & first, axis=1)
        widths[: len(levels), 1 : 1 + len(order)] = counted
        widths[: len(levels), 1 + len(order) :] = counted[:, -1:]
        return widths

    @cached_property
    def all_widths(self) -> NDArray[np.int32]:
        """`widths` of every depth at once, [depth, level, nodes], zero below a tree's levels."""
        widths = np.zeros((self.depth + 1, self.depth, self.nodes + 1), dtype=np.int32)
        for depth in range(1, self.depth + 1):
            widths[depth, :depth] = self.widths(depth)
        return widths

    @cached_property
    def exists(self) -> NDArray[np.bool_]:
        """Whether some tree of at most so many levels has so many nodes, [depth, nodes]."""
        sizes = [0, *(self.size(depth) for depth in range(1, self.depth + 1))]
        nodes = np.arange(self.nodes + 1)
        return np.asarray((nodes >= 1) & (nodes <= np.array(sizes)[:, None]))


def _only_largest(reach: Array, count: int) -> Array:
    """The values with all but the `count` largest ones, earlier ones first, set to zero."""
    spread = np.zeros_like(reach)
    largest = np.argsort(-reach, kind="stable")[:count]
    spread[largest] = reach[largest]
    return spread


TreeSearch = OrderedSearch | ProgrammeSearch
"""`values[depth limit, nodes]` are tokens per round, `tree(nodes, depth)` is the tree."""


def search_trees(table: AcceptanceTable, nodes: int, depth: int) -> TreeSearch:
    """The best trees of at most `nodes` nodes and `depth` levels, the root not counted.

    Exact for any table: best-first where no hazard is larger than that of its elder sibling, by
    dynamic programming elsewhere. Values of all sizes and depths are found in one pass, when first
    asked for; a tree is traced when it is asked for. Of equally good trees the same one is found
    everywhere; each search says which.

    Raises:
        UsageError: when a budget is negative.
    """
    if nodes < 0 or depth < 0:
        raise UsageError(f"a tree cannot have {nodes} nodes and {depth} levels")
    searched = OrderedSearch if table.is_ordered else ProgrammeSearch
    return searched(table, nodes, depth)
