"""Evidence `pools`: where the text stands in the trees that a beam grows and a reranking cuts.

A draft model grows a pool from every position of a target's own text: the best `beam` children of
the root, then, layer after layer, the best `beam` children of each of the `beam` most probable
nodes of the layer above (EAGLE-2, arXiv 2406.16858, section 4). A round that grows fewer layers
grows the same pool, cut, and verifies its most probable nodes: one pool prices them all. Its
nodes are given tokens, which `greedy` and `recursive` accept exactly when the target's own
token is among them; what is accepted is therefore the path of the pool that spells the text.
Trees that one lookup merges from what a source gives are cut likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.evidence.base import (
    MOST,
    Drafting,
    Rows,
    judged_several_times,
)
from specplan.cost_models.acceptance.evidence.lengths import TraceOfDrafts
from specplan.cost_models.acceptance.evidence.pool_rounds import BeamPool, read_merged, read_pool
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import RoundDemands
from specplan.cost_models.rounds.round_types import round_types
from specplan.ir.plan import Plan, Round

_NO_PLACE = MOST


@dataclass(frozen=True)
class Pools(TraceOfDrafts):
    """Where the text stands in the pools of every position.

    A node's place is its 0-based order in its pool by probability. A parent stands before its
    children, so that the most probable nodes are a tree.

    Attributes:
        layers: of the pools, the children of the root being the first.
        rows: per prompt, for every position of the target's continuation: 1 where the last node
            of the path that spells the text has children in the pool (or the path is empty), else
            0; then the places of the path's nodes: of the node at depth 1 in the pool cut at 1, 2,
            ..., `layers` layers, of that at depth 2 in the pool cut at 2, ..., `layers`, and so on.
        beam: children of a node that gets any, and nodes of a layer that do; None of trees that a
            source gives.
    """

    layers: int
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    beam: int | None = None
    kind: ClassVar[str] = "pools"

    @cached_property
    def model(self) -> TraceModel:
        """What is accepted of whole pools."""
        return TraceModel(self.whole, lengths=True)

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A tree that a beam grows, or one lookup merges, cut to its most probable nodes."""
        reason = judged_several_times(demands)
        if reason is not None:
            return reason
        merged, tree = _read(plan, item)
        if merged is not None:
            layers, nodes = merged
            if self.layers < layers:
                return f"the profile knows no looked-up trees of {layers} levels"
            return Drafting.of_path(demands, layers, self.cut(layers, nodes))
        if tree is None:
            return "pools say nothing of trees that no beam grows"
        if self.beam != tree.beam or self.layers < tree.layers:
            return (
                f"the profile holds pools of {self.layers} layers by a beam of {self.beam}, the "
                f"plan grows {tree.layers} by one of {tree.beam}"
            )
        lag = {tree.cache: self.lag_share(tree.layers, tree.nodes)}
        return Drafting.of_path(demands, tree.layers, self.cut(tree.layers, tree.nodes), lag)

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        if isinstance(self.layers, bool) or not isinstance(self.layers, int) or self.layers < 1:
            return f"pools of {self.layers!r} layers"
        sizes = {1 + sum(self._cuts(depth)) for depth in range(self.layers + 1)}
        for row in self.rows:
            for position in row:
                if len(position) not in sizes or position[0] not in (0, 1):
                    return f"{list(position)} are no places in pools of {self.layers} layers"
                if any(type(n) is not int or not 0 <= n < _NO_PLACE for n in position):
                    return f"{list(position)} are out of range"
        if not any(self.rows):
            return "holds no measurement"
        return None

    def lengths(self, layers: int, nodes: int) -> Rows:
        """Per prompt and position, the tokens accepted of a tree.

        Args:
            layers: that it grows, at most as many as were measured.
            nodes: its most probable ones, which are verified.
        """
        accepted = (self._places[:, layers - 1, :layers] < nodes).sum(axis=1)
        return tuple(tuple(part.tolist()) for part in np.split(accepted, self._ends))

    @cached_property
    def whole(self) -> Rows:
        """Tokens accepted of all that was drafted."""
        return self.lengths(self.layers, _NO_PLACE)

    def lag_share(self, layers: int, nodes: int) -> float:
        """Share of rounds whose last accepted node the draft model never ran.

        It ran the root and the nodes that got children. Rounds that the end of a text cuts off
        are left out.

        Args:
            layers: see `lengths`.
            nodes: see `lengths`.
        """
        rounds = lagging = 0
        for row, lengths in zip(self._measured_rows, self.lengths(layers, nodes), strict=True):
            start = 0
            while start < len(row) and start + lengths[start] < len(row):
                accepted, position = lengths[start], row[start]
                rounds += 1
                if accepted == layers:
                    lagging += 1
                elif accepted == self._depth(position):
                    lagging += not position[0]
                start += accepted + 1
        return lagging / max(rounds, 1)

    def _cuts(self, depth: int) -> range:
        """Places that are known of each node down to a depth."""
        return range(self.layers, self.layers - depth, -1)

    def _depth(self, position: tuple[int, ...]) -> int:
        """Length of the path that spells the text, from the number of its places."""
        depth, left = 0, len(position) - 1
        while left > 0:
            left -= self.layers - depth
            depth += 1
        return depth

    @cached_property
    def _measured_rows(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Prompts with a position."""
        return tuple(row for row in self.rows if row)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Where the positions of each prompt but the last end among all."""
        ends: NDArray[np.int64] = np.cumsum(
            [len(row) for row in self._measured_rows[:-1]], dtype=np.int64
        )
        return ends

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Places by position, layers - 1 and depth - 1; those that there are none of are high."""
        positions = [position for row in self._measured_rows for position in row]
        places = np.full((len(positions), self.layers, self.layers), _NO_PLACE, dtype=np.int64)
        for index, position in enumerate(positions):
            start = 1
            for depth in range(self._depth(position)):
                stop = start + self.layers - depth
                places[index, depth:, depth] = position[start:stop]
                start = stop
        return places


def pool_size(beam: int, layers: int) -> int:
    """Nodes of a pool, the root not counted."""
    return beam + (layers - 1) * beam * beam


@lru_cache(maxsize=1024)
def _read(plan: Plan, item: Round) -> tuple[tuple[int, int] | None, BeamPool | None]:
    """How the tree of a round is merged or grown; remembered for the rounds read last."""
    types = round_types(plan, item)
    return read_merged(types), read_pool(types)


EVIDENCE = Pools
