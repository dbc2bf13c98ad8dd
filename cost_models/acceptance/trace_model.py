"""Acceptance as it happened: trees replayed on traces of a target's own continuations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from specplan.cost_models.acceptance.hazards import HazardCounts, look_up, posterior
from specplan.cost_models.acceptance.model import AcceptanceModel, Floats
from specplan.cost_models.acceptance.replay import Replay, Traces, replay_lengths, replay_tree
from specplan.cost_models.intervals import Interval
from specplan.ir.errors import UsageError


class TraceModel(AcceptanceModel):
    """Replays every tree that it is asked for, once.

    Args:
        rows: per prompt, the accepted rank at every position (-1 for none), or one by each depth,
            or the length that a source would have had accepted there.
        lengths: whether `rows` hold lengths.
    """

    def __init__(self, rows: Sequence[Sequence[Any]], *, lengths: bool) -> None:
        self._traces = Traces.of(rows)
        self._lengths = lengths
        self._replays: dict[tuple[tuple[int, ...], tuple[int, ...]], Replay] = {}

    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was)."""
        return look_up(self._table, depth, rank)

    def hazard_counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) where nothing was counted."""
        return self._counts.counts(depth, rank)

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its Beta posterior interval."""
        return posterior(*self.hazard_counts(depth, rank), confidence)

    def outcome(self, parents: Sequence[int], ranks: Sequence[int]) -> Replay:
        """What happened with a tree of at least one node.

        Raises:
            UsageError: a tree with siblings on lengths.
        """
        tree = (tuple(parents), tuple(ranks))
        if tree not in self._replays:
            self._replays[tree] = self._play(*tree)
        return self._replays[tree]

    def _play(self, parents: tuple[int, ...], ranks: tuple[int, ...]) -> Replay:
        if not self._lengths:
            return replay_tree(self._traces, parents, ranks)
        if any(ranks):
            raise UsageError(
                "the acceptance profile holds lengths, and a tree needs ranks",
                remedy="Measure ranks, or use a chain.",
            )
        return replay_lengths(self._traces, len(parents))

    @cached_property
    def _counts(self) -> HazardCounts:
        counted = HazardCounts.of_lengths if self._lengths else HazardCounts.of_ranks
        return counted(self._traces)

    @cached_property
    def _table(self) -> Floats:
        return self._counts.table()
