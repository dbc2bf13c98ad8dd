"""What a target accepts from a proposer, as it was measured or published.

A profile belongs to its models, task, sampling settings and way of choosing children: another
temperature or rule is another profile (Sequoia's and SpecInfer's vectors for one pair differ).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from specplan.cost_models.acceptance.hazard_law import HazardLaw
from specplan.cost_models.acceptance.key import AcceptanceKey as AcceptanceKey
from specplan.cost_models.acceptance.key import How as How
from specplan.cost_models.acceptance.law import AcceptanceLaw, Floats
from specplan.cost_models.acceptance.mixture import BetaMixture, MixtureLaw
from specplan.cost_models.acceptance.pools import Pools
from specplan.cost_models.acceptance.profile_json import (
    KIND,
    checked_rows,
    checked_trips,
    checked_whole,
    profile_from_json,
    read_profile_json,
)
from specplan.cost_models.acceptance.trace_law import TraceLaw
from specplan.cost_models.acceptance.turns import Leg, Turns
from specplan.cost_models.intervals import Interval
from specplan.ir.errors import UsageError
from specplan.ir.files import write_json_atomic

SCHEMA_VERSION = 1
Evidence = Literal["ranks", "lengths", "hazards", "mixture", "pools", "turns"]


@dataclass(frozen=True)
class AcceptanceProfile:
    """Acceptance of one proposer; exactly one kind of evidence is given, see `evidence`.

    Attributes:
        key: what it is about.
        ranks: per prompt, for every position of the target's continuation, the rank of the
            proposer's child that is accepted there, -1 for none.
        lengths: per prompt, for every position, how many tokens of a chain are accepted
            when a round starts there.
        trips: beside `lengths`, how many trips the loop of a round took that began there, -1 where
            none began; None where no round has a loop that may end early.
        hazards: P(child accepted | parent accepted) by depth (first row depth 1) and rank; the
            last row holds for all deeper ones.
        mixture: acceptance that varies between contexts.
        pools: where the target's text stands in pools grown by a beam.
        turns: where the target's text is what a model, and what a source, would have drafted.
        trials: positions behind the rows of `hazards`, one number for all or one for each; None
            when nobody said.
        measured_depth: the deepest row of `hazards` that was measured, where deeper ones are no
            more than extrapolated; None where the last row was meant for all of them.
        provenance: how it came about, free form, JSON values.
    """

    key: AcceptanceKey
    ranks: tuple[tuple[int, ...], ...] | None = None
    lengths: tuple[tuple[int, ...], ...] | None = None
    trips: tuple[tuple[int, ...], ...] | None = None
    hazards: tuple[tuple[float, ...], ...] | None = None
    mixture: BetaMixture | None = None
    pools: Pools | None = None
    turns: Turns | None = None
    trials: float | tuple[float, ...] | None = None
    measured_depth: int | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = (self.ranks, self.lengths, self.hazards, self.mixture, self.pools, self.turns)
        whole = self.mixture or self.pools or self.turns
        if whole is not None and kinds.count(None) == len(kinds) - 1:
            checked_whole(self.key.proposer, whole, self.trials, self.measured_depth)
        else:
            checked_rows(self.key.proposer, kinds, self.trials, self.measured_depth)
        checked_trips(self.key.proposer, self.trips, self.lengths)

    @classmethod
    def from_hazards(
        cls,
        hazards: Sequence[Sequence[float]],
        *,
        proposer: str = "draft",
        trials: float | Sequence[float] | None = None,
        measured_depth: int | None = None,
        key: AcceptanceKey | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> AcceptanceProfile:
        """From published hazards, one row per depth; a single row is position independent."""
        width = max((len(row) for row in hazards), default=0)
        rows = tuple((*map(float, row), *(0.0,) * (width - len(row))) for row in hazards)
        return cls(
            key or AcceptanceKey(proposer),
            hazards=rows,
            trials=tuple(trials) if isinstance(trials, Sequence) else trials,
            measured_depth=measured_depth,
            provenance=provenance or {},
        )

    @classmethod
    def from_alpha(
        cls, alpha: float, *, proposer: str = "draft", trials: float | None = None
    ) -> AcceptanceProfile:
        """From one acceptance probability, the same at every depth (Leviathan et al. 2022)."""
        return cls.from_hazards([[alpha]], proposer=proposer, trials=trials)

    @property
    def evidence(self) -> Evidence:
        """Which kind of evidence it holds."""
        if self.pools is not None or self.turns is not None:
            return "turns" if self.pools is None else "pools"
        if self.mixture is not None:
            return "mixture"
        if self.hazards is not None:
            return "hazards"
        return "lengths" if self.ranks is None else "ranks"

    @property
    def match(self) -> tuple[int, int] | None:
        """Shortest and longest suffix that was looked up; None for models."""
        return self.key.match

    @property
    def traces(self) -> Sequence[Sequence[Any]]:
        """What was measured, per prompt and position; empty where the evidence is no trace."""
        whole = self.pools or self.turns
        return self.ranks or self.lengths or (whole.rows if whole else ())

    @property
    def positions(self) -> int:
        """Positions measured; 0 where the evidence is no trace."""
        return sum(len(row) for row in self.traces)

    @property
    def prompts(self) -> int:
        """Prompts measured; 0 where the evidence is no trace."""
        return sum(bool(row) for row in self.traces)

    @property
    def stopped(self) -> tuple[float, ...]:
        """Share of rounds whose loop took at most 0, 1, 2, ... trips; empty where not told."""
        counts = Counter(trips for row in self.trips or () for trips in row if trips >= 0)
        within = accumulate(counts[trips] for trips in range(max(counts, default=-1) + 1))
        return tuple(ended / counts.total() for ended in within)

    @property
    def source(self) -> str:
        """What is behind it, in words."""
        if self.positions:
            return f"was measured at {self.positions} positions of {self.prompts} prompts"
        words = self.provenance.get("words")
        return str(words) if words else "is a given table of rates"

    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was); depth >= 1, rank >= 0."""
        return self._law.hazard(depth, rank)

    def hazard_counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) where nothing was counted."""
        return self._law.counts(depth, rank)

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its posterior interval."""
        return self._law.hazard_interval(depth, rank, confidence)

    def tokens_per_round(
        self, parents: Sequence[int], ranks: Sequence[int], confidence: float = 0.9
    ) -> Interval:
        """Tokens that a round with this static tree emits, the bonus included.

        Traces are replayed; the other laws are summed over the tree (Sequoia). For a source the
        tree is a chain of the tokens proposed at most.

        Raises:
            UsageError: a tree with siblings on a profile of lengths.
        """
        return self._law.tokens_per_round(parents, ranks, confidence)

    def token_draws(self, parents: Sequence[int], ranks: Sequence[int]) -> Floats | None:
        """Tokens per round under draws of what the evidence leaves open; None if nothing is.

        The same draw of different trees belongs to the same state of the world.
        """
        return self._law.token_draws(parents, ranks)

    def accepted_at_least(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(at least d drafted tokens of this tree are accepted), d = 1, 2, ..."""
        return self._law.accepted_at_least(parents, ranks)

    def end_shares(self, parents: Sequence[int], ranks: Sequence[int]) -> tuple[float, ...]:
        """P(a round's last accepted node is the root, node 0, node 1, ...)."""
        return self._law.end_shares(parents, ranks)

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
        return self._law.rounds(parents, ranks, tokens, batch, confidence)

    def of_pool(self, layers: int, nodes: int) -> AcceptanceProfile:
        """What is accepted of one tree grown by the beam, as a profile of lengths.

        Args:
            layers: that the tree grows.
            nodes: its most probable ones, which are verified.

        Raises:
            UsageError: the evidence is no pools, or none of so many layers.
        """
        if self.pools is None or not 1 <= layers <= self.pools.layers:
            raise UsageError(
                f"the profile of {self.key.proposer!r} holds no pools of {layers} layers",
                remedy="Measure it with `specplan profile acceptance`.",
            )
        pools = self.pools
        return self._cut((layers, nodes), lambda: pools.lengths(layers, nodes))

    def of_turns(self, legs: tuple[Leg, ...]) -> AcceptanceProfile:
        """What is accepted of one chain that is drafted in turns, as a profile of lengths.

        Raises:
            UsageError: the evidence is no turns, or a source was compared less far than it drafts.
        """
        turns = self.turns
        if turns is None or turns.problem_of(legs) is not None:
            raise UsageError(
                f"the profile of {self.key.proposer!r} holds no such turns",
                remedy="Measure it with `specplan profile acceptance`.",
            )
        return self._cut(legs, lambda: turns.lengths(legs))

    def save(self, path: Path | str) -> None:
        """Write the profile atomically as JSON."""
        parts: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        parts |= {"key": asdict(self.key), "mixture": self.mixture and asdict(self.mixture)}
        parts |= {"pools": self.pools and self.pools.as_data()}
        parts |= {"turns": self.turns and self.turns.as_data()}
        about = {"schema_version": SCHEMA_VERSION, "kind": KIND}
        write_json_atomic(path, about | parts)

    @classmethod
    def load(cls, path: Path | str) -> AcceptanceProfile:
        """Read a profile.

        Raises:
            UsageError: the file is missing, or is no acceptance profile of this version.
        """
        document = read_profile_json(path, SCHEMA_VERSION)
        return profile_from_json(cls, AcceptanceKey, document, str(path))

    def _cut(
        self, about: tuple[object, ...], lengths: Callable[[], tuple[tuple[int, ...], ...]]
    ) -> AcceptanceProfile:
        """What is accepted of some drafts as a profile of lengths, found once."""
        if about not in self._cuts:
            self._cuts[about] = replace(self, pools=None, turns=None, lengths=lengths())
        return self._cuts[about]

    @cached_property
    def _cuts(self) -> dict[tuple[object, ...], AcceptanceProfile]:
        return {}

    @cached_property
    def _law(self) -> AcceptanceLaw:
        name = self.key.proposer
        if self.pools is not None or self.turns is not None:
            whole = self.pools or self.turns
            assert whole is not None
            return TraceLaw(whole.whole, lengths=True, name=name)
        if self.mixture is not None:
            return MixtureLaw(self.mixture)
        if self.hazards is not None:
            return HazardLaw(self.hazards, self.trials, self.measured_depth)
        if self.ranks is not None:
            return TraceLaw(self.ranks, lengths=False, name=name)
        return TraceLaw(self.lengths or (), lengths=True, name=name)
