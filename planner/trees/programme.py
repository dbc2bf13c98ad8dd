"""Dynamic programming over sizes, for acceptance that may increase with rank.

With G[n] the most that n nodes can add below some node, and C[y] = 1 + G[y - 1] what a child
brings that heads y nodes (relative to its own probability), the best n nodes in exactly b child
subtrees are T_b[n] = max over y of T_(b-1)[n - y] + h_b C[y], and G[n] = max over b of T_b[n]; C
comes from one level further down (Sequoia, arXiv 2402.12374, section 3.2, which counts the root in
sizes and levels, and asks for exactly n nodes; here n is a budget, and the values are the same
wherever exactly n nodes fit). Five facts make it quick and lose nothing:

- *Sizes follow hazards.* Siblings offer the same C, which does not decrease. If a child with the
  smaller hazard heads more nodes than one with the larger, exchanging what hangs below them loses
  nothing (rearrangement inequality). So a child with k elder siblings of at least its own hazard
  heads at most n / (k + 1) of n nodes: all ranks together cost N^2 log W, not N^2 W.
- *Nodes go where they are worth most.* If the last of the y nodes below a child, h_b (C[y] -
  C[y - 1]), is worth no more than one more below an elder sibling, moving it loses nothing; so the
  elder siblings may be taken to have grown past all places that are worth as much. Finding these
  takes a sort per rank, which pays for large budgets only.
- *Ranks end.* No node in or after a rank is worth more than the largest hazard h from there on.
  Say an elder sibling with hazard g heads so few nodes that g times the least increase of C so
  far is h at least: then a node is worth as much there. From a rank on before which all n nodes
  find such places, none is needed.
- *Levels end.* Where C equals that of one level less, so does everything computed from it.
- *Sizes end.* Where C stops to grow, a larger child is worth no more.

Ties go to fewer children, then to the smaller subtree of the youngest child, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specplan.planner.trees.shape import RankPath, StaticTree, tree_of_paths
from specplan.planner.trees.table import AcceptanceTable, Array

_BLOCK = 32768
"""Sums held at once, so that they stay in the processor's cache."""
_SHARPENED = 1 << 17
"""Sums of one rank from which it pays to leave out more of them."""


@dataclass(frozen=True, eq=False)
class Forests:
    """The best forests below a node.

    Attributes:
        exactly: T, [children, nodes]: most that at most so many nodes in exactly so many child
            subtrees add; minus infinity where there are fewer nodes than children.
        best: G, [nodes]: most that at most so many nodes add.
        child: C, [nodes]: what a child that heads so many nodes brings; the entry 0 is unused.
    """

    exactly: Array
    best: Array
    child: Array


class _Sums:
    """max over y of left[n - y] + right[y], for all n, by blocks of y."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._left = np.full(2 * nodes + 1, -np.inf)
        step = self._left.itemsize
        # shifted[y, n] is left[n - y]
        self._shifted = np.lib.stride_tricks.as_strided(
            self._left[nodes:], (nodes + 1, nodes + 1), (-step, step), writeable=False
        )
        self._block = np.empty(max(_BLOCK, nodes + 1))

    def largest(self, left: Array, right: Array, starts: Sequence[int], out: Array) -> None:
        """Write the largest sums to `out`, which holds minus infinity.

        Args:
            left: by nodes, from 0.
            right: by nodes, from 1, as a column; those beyond its end are not tried.
            starts: by nodes of `right`, from 1: the n from which they are tried, not decreasing.
            out: by nodes, from 0.
        """
        nodes = self.nodes
        self._left[nodes:] = left
        last = min(len(starts), len(right))
        first = 1
        while first <= last:
            start = starts[first - 1]
            width = nodes + 1 - start
            rows = min(last - first + 1, max(1, _BLOCK // width))
            block = self._block[: rows * width].reshape(rows, width)
            shifted = self._shifted[first : first + rows, start:]
            np.add(shifted, right[first - 1 : first - 1 + rows], out=block)
            largest = np.maximum.reduce(block, axis=0)
            np.maximum(out[start:], largest, out=out[start:])
            first += rows


class _Ranks:
    """What is the same for all nodes whose children have these hazards."""

    def __init__(self, row: Array) -> None:
        self.row = row
        self._elder = np.tri(len(row), k=-1, dtype=bool)  # [rank, elder sibling]
        larger = self._elder & (row >= row[:, None])
        self.elders: list[int] = larger.sum(axis=1).tolist()
        self._later = np.maximum.accumulate(row[::-1])[::-1]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # growth of C below an elder sibling that outweighs the rank and all later ones
            self._outweighed = (-self._later[:, None] / row)[self._elder]

    def useful(self, child: Array) -> int:
        """How many of the first ranks can be worth a node; the others never are."""
        nodes = len(child) - 1
        growth = np.minimum.accumulate(np.diff(child[1:]))
        places = np.zeros(self._elder.shape, dtype=np.intp)
        places[self._elder] = 1 + np.searchsorted(-growth, self._outweighed, side="right")
        useless = (places.sum(axis=1) >= nodes) | (self._later == 0.0)
        return min(nodes, int(useless.argmax()) if useless.any() else len(useless))


class _Places:
    """What one more node is worth at least below elder siblings; all values here are negated."""

    def __init__(self, row: Array, child: Array) -> None:
        self._row, self._child = row, child
        self._growth = -np.minimum.accumulate(np.diff(child[1:]))
        self._sorted, self._ranks = np.empty(0), 0

    def sharpened(self, starts: range, rank: int) -> Sequence[int]:
        """Later starts of the sizes of a child: where elder siblings have no better places."""
        while self._ranks < rank:
            merged = np.concatenate((self._sorted, self._row[self._ranks] * self._growth))
            merged.sort(kind="stable")
            self._sorted, self._ranks = merged[: len(self._growth)], self._ranks + 1
        sizes = np.arange(2, len(starts) + 1)
        lost = self._row[rank] * (self._child[1 : len(starts)] - self._child[2 : len(starts) + 1])
        better = np.searchsorted(self._sorted, lost, side="right")
        plain = np.arange(starts.start, starts.stop, starts.step)[1:]
        sharper = np.maximum(sizes + rank + better, plain)
        # a block of sizes begins with the first start
        sharper = np.minimum.accumulate(sharper[::-1])[::-1]
        useful = int(np.searchsorted(sharper, starts.stop - 1, side="right"))
        return [starts[0], *sharper[:useful].tolist()]


def _forests(of: _Ranks, child: Array, sums: _Sums) -> Forests:
    """The best forests below a node whose children have these hazards and bring `child`."""
    ranks, row, nodes = of.useful(child), of.row, sums.nodes
    exactly = np.full((ranks + 1, nodes + 1), -np.inf)
    exactly[0] = 0.0
    if ranks:
        exactly[1, 1:] = row[0] * child[1:]
    largest = 1 + int(np.searchsorted(child[1:], child[-1]))
    if largest == 1:  # the children are leaves
        for rank in range(1, ranks):
            exactly[rank + 1, rank + 1 :] = exactly[rank, rank] + row[rank] * child[1]
        return Forests(exactly, exactly.max(axis=0), child)
    places, column = _Places(row, child), child[1 : largest + 1, None]
    for rank in range(1, ranks):
        share = of.elders[rank] + 1
        shared = range(rank + 1, nodes + 1, share)
        sharpen = nodes * nodes > _SHARPENED * share
        starts = places.sharpened(shared, rank) if sharpen else shared
        sums.largest(exactly[rank], row[rank] * column[: len(starts)], starts, exactly[rank + 1])
    return Forests(exactly, exactly.max(axis=0), child)


@dataclass(frozen=True, eq=False)
class ProgrammeSearch:
    """The best trees of every size and depth limit, for any table.

    Attributes:
        table: acceptance by depth and rank.
        nodes: most drafted nodes.
        depth: most levels.
    """

    table: AcceptanceTable
    nodes: int
    depth: int

    @cached_property
    def values(self) -> Array:
        """Tokens per round, bonus included, [depth limit, nodes], both from 0."""
        return 1.0 + np.stack([forests.best for forests in self._below[0]])

    @cached_property
    def _below(self) -> list[list[Forests]]:
        """Best forests below a node, [depth of the node][levels left]; the last depth for all."""
        sums, none = _Sums(self.nodes), np.zeros(self.nodes + 1)
        empty = Forests(none[None], none, none)
        forests: list[list[Forests]] = [[] for _ in self.table.hazards]
        for depth in reversed(range(len(forests))):
            here, ranks = forests[depth], _Ranks(self.table.hazards[depth])
            below = forests[min(depth + 1, len(forests) - 1)]
            here.append(empty)
            for left in range(1, self.depth + 1 - depth):
                if left > 1 and _same(below[left - 1], below[left - 2]):
                    here.append(here[-1])
                    continue
                child = np.concatenate(([0.0], 1.0 + below[left - 1].best[:-1]))
                here.append(_forests(ranks, child, sums))
        return forests

    def tree(self, nodes: int, depth: int) -> StaticTree:
        """The best tree of at most so many nodes and levels."""
        paths: list[RankPath] = []
        waiting: list[tuple[RankPath, int, int]] = [((), nodes, depth)]
        while waiting:
            path, budget, left = waiting.pop()
            level = min(len(path), len(self.table.hazards) - 1)
            sizes = _sizes(self._below[level][left], self.table.hazards[level], budget)
            for rank, size in enumerate(sizes):
                child = (*path, rank)
                paths.append(child)
                if self.table.hazards[level, rank] > 0.0 and size > 1 and left > 1:
                    waiting.append((child, size - 1, left - 1))
        return tree_of_paths(paths)


def _same(some: Forests, others: Forests) -> bool:
    return some is others or np.array_equal(some.best, others.best)


def _sizes(forests: Forests, row: Array, budget: int) -> list[int]:
    """Nodes that each child heads in the best forest of at most so many nodes."""
    children = int(forests.exactly[:, budget].argmax())
    sizes: list[int] = []
    for rank in reversed(range(1, children)):
        most = budget - rank
        brought = row[rank] * forests.child[1 : most + 1]
        sums = forests.exactly[rank, budget - 1 : budget - 1 - most : -1] + brought
        sizes.append(1 + int(sums.argmax()))
        budget -= sizes[-1]
    return [*([budget] if children else []), *reversed(sizes)]
