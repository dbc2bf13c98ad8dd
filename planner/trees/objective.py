"""The tree that emits a token in the least time, where drafting costs by width and not by level.

A round takes the time to verify its nodes, one draft forward per level over the nodes that get
children, and a constant: seconds per token are these over the tokens per round (compare Sequoia,
arXiv 2402.12374, section 4.3, whose every level costs the same). Plain decoding is charged a step
of the target and nothing else; the published program charges it a draft step too.

What is exact: for every size and depth, the tree with the most tokens, and the same among trees
that expand at most w nodes on any level, for a ladder of widths w at which the price of a draft
forward rises (in ordered tables; elsewhere such trees are only tried). A tree that trades width of
one level against another's may lie between. Hence a bound comes along that no tree beats: every
cell's most tokens against its least seconds, per step of the ladder. Where the price of a draft
forward does not depend on its width, the two meet and the choice is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from specplan.planner.trees.round_times import RoundTimes
from specplan.planner.trees.search import OrderedSearch, TreeSearch, search_trees
from specplan.planner.trees.shape import StaticTree
from specplan.planner.trees.table import AcceptanceTable, Array

_LADDER = 12
"""Most limits of width that are tried, spread over those at which the price rises."""
_TRACED = 32
"""Most trees traced where the table is not ordered: only then a tree's widths are known."""


@dataclass(frozen=True, eq=False)
class TreeChoice:
    """The best tree found, and what it was compared with.

    Attributes:
        tree: its shape; no nodes where plain decoding is the fastest.
        tokens_per_round: emitted tokens, bonus included.
        seconds_per_round: of this tree.
        objective: what it is the best of.
        times: of the rounds.
        seconds_by_cell: seconds per token of the best tree, [depth, nodes], both from 0; infinite
            where none was priced, plain decoding at [0, 0].
    """

    tree: StaticTree
    tokens_per_round: float
    seconds_per_round: float
    objective: TreeObjective
    times: RoundTimes
    seconds_by_cell: Array

    @property
    def plain(self) -> float:
        """Seconds per token without speculation."""
        return self.times.plain

    @cached_property
    def bound(self) -> float:
        """No tree within the limits takes fewer seconds per token."""
        return min(self.objective.bound(self.times), self.seconds_per_token)

    @property
    def seconds_per_token(self) -> float:
        """Of the best tree found."""
        return self.seconds_per_round / self.tokens_per_round

    @property
    def speedup(self) -> float:
        """Over plain decoding."""
        return self.plain / self.seconds_per_token

    @property
    def gap(self) -> float:
        """Most that a better tree could still save, as a fraction of the time per token."""
        return max(0.0, 1.0 - self.bound / self.seconds_per_token)


@dataclass(frozen=True, eq=False)
class TreeObjective:
    """The best trees of one table for any number of batch sizes and contexts.

    Attributes:
        table: acceptance by depth and rank.
        nodes: most drafted nodes.
        depth: most levels.
    """

    table: AcceptanceTable
    nodes: int
    depth: int

    def best(self, times: RoundTimes) -> TreeChoice:
        """The tree with the fewest seconds per token; ties go to fewer nodes, then levels.

        Args:
            times: of rounds at one batch size and context; sizes beyond them are not chosen.
        """
        (choice,) = self.best_of_each([times])
        return choice

    def best_of_each(self, rounds: Sequence[RoundTimes]) -> list[TreeChoice]:
        """The best tree at every one of several loads; see `best`."""
        seconds_by_cell = np.full((len(rounds), self.depth + 1, self.nodes + 1), np.inf)
        seconds_by_cell[:, 0, 0] = [times.plain for times in rounds]
        limits = np.zeros(seconds_by_cell.shape, dtype=np.intp)
        places: dict[int, list[int]] = {}
        for place, times in enumerate(rounds):
            for width in _ladder(times.draft, self.nodes):
                places.setdefault(width, []).append(place)
        for width, some in sorted(places.items()):
            search, known = self._limited(False, width), seconds_by_cell[some]
            seconds = _seconds_per_token(search, [rounds[place] for place in some])
            limits[some] = np.where(seconds < known, width, limits[some])
            seconds_by_cell[some] = np.minimum(seconds, known)
        return [self._choice(*parts) for parts in zip(rounds, seconds_by_cell, limits, strict=True)]

    def _choice(
        self, times: RoundTimes, seconds_by_cell: Array, limits: NDArray[np.intp]
    ) -> TreeChoice:
        """The best of what was priced, by the limits of width with which it was found."""
        nodes, depth = _first_least(seconds_by_cell)
        tree = self._limited(False, int(limits[depth, nodes])).tree(nodes, depth)
        if not self.table.is_ordered:
            tree = self._traced(times, tree, seconds_by_cell)
        tokens, taken = tree.value(self.table), times.round_seconds(tree)
        seconds_by_cell[tree.depth, len(tree)] = taken / tokens
        return TreeChoice(tree, tokens, taken, self, times, seconds_by_cell)

    def bound(self, times: RoundTimes) -> float:
        """Seconds per token that no tree with children goes below, nor plain decoding."""
        bound, below = times.plain, 0
        for width in _ladder(times.draft, self.nodes):
            least = _least_seconds(times, self._fits.shape, below, width)
            most = np.minimum(self.exact.values, self._limited(True, width).values)
            bound = min(bound, float((np.where(self._fits, least, np.inf) / most).min()))
            below = width
        return bound

    @cached_property
    def exact(self) -> TreeSearch:
        """The trees with the most tokens."""
        return search_trees(self.table, self.nodes, self.depth)

    @cached_property
    def _fits(self) -> NDArray[np.bool_]:
        """Whether there are trees of exactly so many levels and nodes, [depth, nodes]."""
        ranks, most = self.table.hazards.shape[1], [0]
        while len(most) <= self.depth:
            most.append(min(self.nodes, most[-1] * ranks + ranks))
        depths, nodes = np.arange(self.depth + 1)[:, None], np.arange(self.nodes + 1)
        return np.asarray((nodes >= depths) & (nodes <= np.array(most)[:, None]))

    def _limited(self, above: bool, width: int) -> OrderedSearch:
        """The best trees that expand at most `width` nodes per level.

        Exact in ordered tables. Elsewhere, of the table made ordered: from above, whose values no
        such tree exceeds, or from below, whose trees emit at least their value.
        """
        key = (above and not self.table.is_ordered, width)
        if key not in self._searches:
            table = self._from_above if key[0] else self._from_below
            self._searches[key] = OrderedSearch(table, self.nodes, self.depth, width)
        return self._searches[key]

    @cached_property
    def _searches(self) -> dict[tuple[bool, int], OrderedSearch]:
        return {}

    @cached_property
    def _from_below(self) -> AcceptanceTable:
        return AcceptanceTable(np.minimum.accumulate(self.table.hazards, axis=1))

    @cached_property
    def _from_above(self) -> AcceptanceTable:
        return AcceptanceTable(np.maximum.accumulate(self.table.hazards[:, ::-1], axis=1)[:, ::-1])

    def _traced(self, times: RoundTimes, tree: StaticTree, seconds_by_cell: Array) -> StaticTree:
        """The best of `tree` and the trees with the most tokens, the most promising ones first.

        Enters what it prices in `seconds_by_cell`, and ends where no further tree can be better.
        """
        best = times.round_seconds(tree) / tree.value(self.table)
        least = (
            _least_seconds(times, seconds_by_cell.shape, 0, max(self.nodes, 1)) / self.exact.values
        )
        for cell in np.argsort(least.T, axis=None, kind="stable")[:_TRACED]:
            nodes, depth = map(int, np.unravel_index(cell, least.T.shape))
            if least[depth, nodes] >= best:
                break
            other = self.exact.tree(nodes, depth)
            taken = times.round_seconds(other) / other.value(self.table)
            seconds_by_cell[depth, nodes] = min(taken, seconds_by_cell[depth, nodes])
            if taken < best:
                best, tree = taken, other
        return tree


def _ladder(draft: Array, nodes: int) -> list[int]:
    """Limits of width: where a draft forward over one more node costs more, and no limit."""
    rises = 1 + np.flatnonzero(np.diff(draft[:nodes]) > 0.0)
    if len(rises) >= _LADDER:
        rises = rises[_spread(len(rises))]
    return [*rises.tolist(), max(nodes, 1)]


@cache
def _spread(count: int) -> NDArray[np.intp]:
    """Places of at most `_LADDER` - 1 of so many, close together at the beginning."""
    return np.unique(np.geomspace(1, count, _LADDER - 1).round().astype(np.intp) - 1)


def _verify_seconds(times: RoundTimes, nodes: int) -> Array:
    """Seconds to verify by drafted nodes; infinite where they are not known."""
    seconds = np.full(nodes + 1, np.inf)
    known = times.verify[: nodes + 1]
    seconds[: len(known)] = known
    return seconds


def _least_seconds(times: RoundTimes, shape: tuple[int, int], below: int, width: int) -> Array:
    """What rounds take at least, [depth, nodes], by how many nodes their widest level expands.

    These are the root's draft forward, that of a level of `below` + 1 to `width` nodes, and for
    all other levels the cheapest.
    """
    deepest = shape[0] - 1
    draft = times.draft_of(np.arange(1, width + 1))
    drafted = np.full(deepest + 1, np.inf)
    drafted[1:] = times.draft[0] + np.arange(-1, deepest - 1) * draft.min() + draft[below:].min()
    if deepest:
        drafted[1] = times.draft[0]
    least = drafted[:, None] + (_verify_seconds(times, shape[1] - 1) + times.overhead)
    least[:, 0] = np.inf
    return np.asarray(least, dtype=np.float64)


def _seconds_per_token(search: OrderedSearch, rounds: Sequence[RoundTimes]) -> Array:
    """Of the best tree of every size and depth, [rounds, depth, nodes], as it is grown."""
    widths = np.arange(search.nodes + 1)
    draft = np.stack([times.draft_of(widths) for times in rounds], axis=1)
    drafted = draft[search.all_widths].sum(axis=1)  # rounds come last: their rows lie together
    verify = np.stack([_verify_seconds(times, search.nodes) for times in rounds], axis=1)
    taken = verify + drafted + np.array([times.overhead for times in rounds])
    seconds = np.where(search.exists, np.moveaxis(taken, -1, 0), np.inf)
    return np.asarray(seconds / search.values, dtype=np.float64)


def _first_least(seconds_by_cell: Array) -> tuple[int, int]:
    """(nodes, depth) of the least entry; fewer nodes first, then fewer levels."""
    nodes, depth = np.unravel_index(int(seconds_by_cell.T.argmin()), seconds_by_cell.T.shape)
    return int(nodes), int(depth)
