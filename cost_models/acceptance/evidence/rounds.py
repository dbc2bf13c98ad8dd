"""Evidence `rounds`: the very rounds of a plan were run on the prompts.

It prices every round that drafts, whatever its ops: where no place of a text tells what a round
accepts, as where a draft depends on what earlier rounds left behind, the rounds themselves do. A
profile of it belongs to one plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

from specplan.cost_models.acceptance.evidence.base import (
    Drafting,
    Evidence,
    Rows,
    problem_of_rows,
)
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import RoundDemands
from specplan.cost_models.rounds.stopping import stopping_loops, with_ends
from specplan.ir.plan import Plan, Round

NO_ROUND = -1
"""In place of trips, at positions within a round."""


@dataclass(frozen=True)
class RoundsRun(Evidence):
    """What rounds that ran accepted, and how far their loops went.

    Attributes:
        lengths: per prompt, for every position of its output, the accepted tokens of the draft of
            the round that began there; within a round, what was left of its draft.
        trips: beside each, how many trips the loop of the round took that began there, `NO_ROUND`
            where none began; None where no round has one loop that may end early.
    """

    lengths: Rows
    trips: Rows | None = None
    kind: ClassVar[str] = "rounds"

    @classmethod
    def of_places(cls, rows: Sequence[Sequence[tuple[int, int]]]) -> RoundsRun:
        """From accepted tokens and trips, per prompt and position."""
        lengths = tuple(tuple(accepted for accepted, _ in row) for row in rows)
        trips = tuple(tuple(taken for _, taken in row) for row in rows)
        looped = any(taken != NO_ROUND for row in trips for taken in row)
        return cls(lengths, trips if looped else None)

    @property
    def places(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """What `of_places` was made of."""
        trips = self.trips or tuple((NO_ROUND,) * len(row) for row in self.lengths)
        rows = zip(self.lengths, trips, strict=True)
        return tuple(tuple(zip(accepted, taken, strict=True)) for accepted, taken in rows)

    @property
    def stopped(self) -> tuple[float, ...]:
        """Share of rounds whose loop took at most 0, 1, 2, ... trips; empty without trips."""
        counts = Counter(trips for row in self.trips or () for trips in row if trips >= 0)
        within = accumulate(counts[trips] for trips in range(max(counts, default=-1) + 1))
        return tuple(ended / counts.total() for ended in within)

    @cached_property
    def model(self) -> TraceModel:
        """Replays the rounds."""
        return TraceModel(self.lengths, lengths=True)

    @property
    def traces(self) -> Sequence[Sequence[Any]]:
        """Lengths, per prompt and position."""
        return self.lengths

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A draft of any shape, judged any number of times: the last judgement is emitted.

        How much a model that drafts has pending then was not measured: every round is taken to lag.
        """
        tree = demands.judged[-1]
        if tree.parents == ():
            return Drafting(demands)
        if self.trips and len(stopping_loops(item)) == 1:
            demands = with_ends(plan, item, demands, self.stopped)
        return Drafting.of_path(demands, tree.depth, self)

    def with_all_trips(self) -> RoundsRun:
        """See `Evidence.with_all_trips`."""
        return replace(self, trips=None)

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        wrong = problem_of_rows(self.lengths, 0)
        if wrong is not None or self.trips is None:
            return wrong
        if list(map(len, self.trips)) != list(map(len, self.lengths)):
            return "trips stand beside lengths, one for each"
        for value in (value for row in self.trips for value in row):
            if type(value) is not int or not NO_ROUND <= value < 1 << 20:
                return f"{value!r} trips are out of range"
        if not any(value >= 0 for row in self.trips for value in row):
            return "its trips belong to no round"
        return None


EVIDENCE = RoundsRun
