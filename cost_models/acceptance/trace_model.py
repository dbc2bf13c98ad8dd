"""Acceptance as it happened: trees replayed on traces of a target's own continuations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from specplan.cost_models.acceptance.hazards import HazardCounts, look_up, posterior
from specplan.cost_models.acceptance.model import Floats
from specplan.cost_models.acceptance.replay import Replay, Traces, replay_lengths, replay_tree
from specplan.cost_models.intervals import Interval
from specplan.ir.errors import UsageError


class TraceModel:
    """Replays every tree that it is asked for, once.

    Args:
        rows: per prompt, the accepted rank at every position (-1 for none), or the length that a
            source would have had accepted there.
        lengths: whether `rows` hold lengths.
    """

    def __init__(self, rows: Sequence[Sequence[int]], *, lengths: bool) -> None:
        self._traces = Traces.of(rows)
        self._lengths = lengths
        self._replays: dict[tuple[tuple[int, ...], tuple[int, ...]], Replay] = {}

    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was)."""
        return look_up(self._table, depth, rank)

    def counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) where nothing was counted."""
        return self._counts.counts(depth, rank)

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its Beta posterior interval."""
        return posterior(*self.counts(depth, rank), confidence)

    def tokens_per_round(
        self, parents: Sequence[int], ranks: Sequence[int], confidence: float = 0.9
    ) -> Interval:
        """Tokens that a round emits, with an interval over prompts; see `Replay`."""
        if not len(parents):
            return Interval.exact(1.0)
        return self.replay(parents, ranks).tokens_per_round(confidence)

    def token_draws(self, parents: Sequence[int], ranks: Sequence[int]) -> Floats | None:
        """Tokens per round under resampled prompts, [draws]; see `Replay.token_draws`."""
        return self.replay(parents, ranks).token_draws() if len(parents) else None

    def accepted_at_least(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(at least d drafted tokens are accepted), d = 1, 2, ..."""
        return self.replay(parents, ranks).at_least() if len(parents) else ()

    def end_shares(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(a round's last accepted node is the root, node 0, node 1, ...)."""
        return self.replay(parents, ranks).end_shares() if len(parents) else (1.0,)

    def rounds(
        self,
        parents: Sequence[int],
        ranks: Sequence[int],
        tokens: int,
        batch: int = 1,
        confidence: float = 0.9,
    ) -> Interval:
        """Rounds until all requests of a batch have emitted `tokens` each; see `Replay`."""
        if not len(parents):
            return Interval.exact(float(tokens))
        return self.replay(parents, ranks).rounds(tokens, batch, confidence)

    def replay(self, parents: Sequence[int], ranks: Sequence[int]) -> Replay:
        """What happened with a tree.

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
