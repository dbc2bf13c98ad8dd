"""What a target accepts from a proposer, as it was measured or published.

A profile belongs to its models, task, sampling settings and way of choosing children: another
temperature or rule is another profile (Sequoia's and SpecInfer's vectors for one pair differ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance_json import (
    checked_rows,
    profile_from_json,
    read_profile_json,
)
from specplan.cost_models.closed_forms import accepted_at_least, expected_rounds, reach
from specplan.cost_models.hazards import HazardCounts, look_up, posterior, value_interval
from specplan.cost_models.intervals import Interval
from specplan.cost_models.replay import Replay, Traces, replay_lengths, replay_tree
from specplan.ir.errors import UsageError
from specplan.ir.files import write_json_atomic

SCHEMA_VERSION = 1
How = Literal["best", "draw", "draw_distinct", "given"]


@dataclass(frozen=True)
class AcceptanceKey:
    """What a profile is about.

    Attributes:
        proposer: the draft model's name, or "text" for prompt lookup.
        target_digest: identity of the target's checkpoint.
        proposer_digest: identity of the draft model's checkpoint; "" for a source.
        task: the user's word for the kind of prompts.
        temperature: of the request's sampling.
        top_k: of the request's sampling, 0 for off.
        top_p: of the request's sampling, 1 for off.
        how: how children were chosen: the best ranks, draws, draws without replacement, or
            given by a source.
        match: shortest and longest suffix looked up, tokens; for sources.
    """

    proposer: str
    target_digest: str = ""
    proposer_digest: str = ""
    task: str = ""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    how: How = "best"
    match: tuple[int, int] | None = None

    def differences(self, other: AcceptanceKey) -> tuple[str, ...]:
        """What keeps a profile with this key from serving where `other` is asked for."""
        mine, theirs = asdict(self), asdict(other)
        return tuple(
            f"{name}: {mine[name]!r} against {theirs[name]!r}"
            for name in mine
            if mine[name] != theirs[name]
        )


@dataclass(frozen=True)
class AcceptanceProfile:
    """Acceptance of one proposer; exactly one of `ranks`, `lengths` and `hazards` is given.

    Attributes:
        key: what it is about.
        ranks: per prompt, for every position of the target's continuation, the rank of the
            proposer's child that is accepted there, -1 for none.
        lengths: per prompt, for every position, how many of a source's tokens are accepted
            when a round starts there.
        hazards: P(child accepted | parent accepted) by depth (first row depth 1) and rank; the
            last row holds for all deeper ones.
        trials: positions behind each row of `hazards`; None when nobody said.
        provenance: how it came about, free form, JSON values.
    """

    key: AcceptanceKey
    ranks: tuple[tuple[int, ...], ...] | None = None
    lengths: tuple[tuple[int, ...], ...] | None = None
    hazards: tuple[tuple[float, ...], ...] | None = None
    trials: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_rows(self.key.proposer, self.ranks, self.lengths, self.hazards, self.trials)

    @classmethod
    def from_hazards(
        cls,
        hazards: Sequence[Sequence[float]],
        *,
        proposer: str = "draft",
        trials: float | None = None,
        key: AcceptanceKey | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> AcceptanceProfile:
        """From published hazards, one row per depth; a single row is position independent."""
        width = max((len(row) for row in hazards), default=0)
        rows = tuple((*map(float, row), *(0.0,) * (width - len(row))) for row in hazards)
        return cls(
            key or AcceptanceKey(proposer), hazards=rows, trials=trials, provenance=provenance or {}
        )

    @classmethod
    def from_alpha(
        cls, alpha: float, *, proposer: str = "draft", trials: float | None = None
    ) -> AcceptanceProfile:
        """From one acceptance probability, the same at every depth (Leviathan et al. 2022)."""
        return cls.from_hazards([[alpha]], proposer=proposer, trials=trials)

    @property
    def match(self) -> tuple[int, int] | None:
        """Shortest and longest suffix that was looked up; None for models."""
        return self.key.match

    @property
    def positions(self) -> int:
        """Positions measured."""
        return sum(len(row) for row in self.ranks or self.lengths or ())

    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was); depth >= 1, rank >= 0."""
        return look_up(self._table, depth, rank)

    def hazard_counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) where nothing was counted."""
        if self._counts is not None:
            return self._counts.counts(depth, rank)
        trials = self.trials or 0.0
        return self.hazard(depth, rank) * trials, trials

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its Beta posterior interval."""
        accepted, trials = self.hazard_counts(depth, rank)
        if self.hazards is not None and not self.trials:
            return Interval.exact(self.hazard(depth, rank))
        return posterior(accepted, trials, confidence)

    def tokens_per_round(
        self, parents: Sequence[int], ranks: Sequence[int], confidence: float = 0.9
    ) -> Interval:
        """Tokens that a round with this static tree emits, the bonus included.

        Traces are replayed; a table of hazards is summed over the tree (Sequoia). For a source
        the tree is a chain of the tokens proposed at most.

        Raises:
            UsageError: a tree with siblings on a profile of lengths.
        """
        if not parents:
            return Interval.exact(1.0)
        replayed = self._replay(parents, ranks)
        if replayed is not None:
            return replayed.tokens_per_round(confidence)
        return value_interval(parents, ranks, self._table, self.trials, confidence)

    def accepted_at_least(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(at least d drafted tokens of this tree are accepted), d = 1, 2, ..."""
        replayed = self._replay(parents, ranks) if parents else None
        if replayed is not None:
            return replayed.at_least()
        return accepted_at_least(parents, ranks, self.hazard)

    def end_shares(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(a round's last accepted node is the root, node 0, node 1, ...)."""
        replayed = self._replay(parents, ranks) if parents else None
        if replayed is not None:
            return replayed.end_shares()
        reached = [1.0, *reach(parents, ranks, self.hazard)]
        shares = list(reached)
        for node, parent in enumerate(parents):
            shares[parent + 1] -= reached[node + 1]
        return tuple(shares)

    def rounds(
        self,
        parents: Sequence[int],
        ranks: Sequence[int],
        tokens: int,
        batch: int = 1,
        confidence: float = 0.9,
    ) -> Interval:
        """Rounds until all requests of a batch have emitted `tokens` each; see `Replay.rounds`.

        Without traces every request is taken to be alike, and only the mean is known.
        """
        if not parents:
            return Interval.exact(float(tokens))
        replayed = self._replay(parents, ranks)
        if replayed is not None:
            return replayed.rounds(tokens, batch, confidence)
        mean = expected_rounds(tokens, self.accepted_at_least(parents, ranks))
        value = self.tokens_per_round(parents, ranks, confidence)
        return Interval(mean, mean * value.mean / value.high, mean * value.mean / value.low)

    def save(self, path: Path | str) -> None:
        """Write the profile atomically as JSON."""
        write_json_atomic(
            path, {"schema_version": SCHEMA_VERSION, "kind": "acceptance_profile", **asdict(self)}
        )

    @classmethod
    def load(cls, path: Path | str) -> AcceptanceProfile:
        """Read a profile.

        Raises:
            UsageError: the file is missing, or is no acceptance profile of this version.
        """
        document = read_profile_json(path, SCHEMA_VERSION)
        return profile_from_json(cls, AcceptanceKey, document, str(path))

    @cached_property
    def _traces(self) -> Traces | None:
        rows = self.ranks if self.ranks is not None else self.lengths
        return None if rows is None else Traces.of(rows)

    @cached_property
    def _counts(self) -> HazardCounts | None:
        if self._traces is None:
            return None
        counted = HazardCounts.of_lengths if self.ranks is None else HazardCounts.of_ranks
        return counted(self._traces)

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        if self._counts is not None:
            return self._counts.table()
        return np.array(self.hazards, dtype=np.float64)

    def _replay(self, parents: Sequence[int], ranks: Sequence[int]) -> Replay | None:
        if self._traces is None:
            return None
        tree = (tuple(parents), tuple(ranks))
        if tree not in self._replays:
            self._replays[tree] = self._play(self._traces, *tree)
        return self._replays[tree]

    @cached_property
    def _replays(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], Replay]:
        return {}

    def _play(self, traces: Traces, parents: Sequence[int], ranks: Sequence[int]) -> Replay:
        if self.lengths is None:
            return replay_tree(traces, parents, ranks)
        if any(ranks):
            raise UsageError(
                f"the profile of {self.key.proposer!r} holds lengths, a tree needs ranks",
                remedy="Measure ranks, or use a chain.",
            )
        return replay_lengths(traces, len(parents))
