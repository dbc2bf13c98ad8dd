"""Evidence `lengths`: how far a draft that begins at a position is accepted.

Of copies from a source, and of drafts that depend on where the round began, such as those of a
model without some of its blocks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from specplan.cost_models.acceptance.evidence.base import (
    Drafting,
    Rows,
    Trace,
    TraceOfSeveral,
    problem_of_rows,
)
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import RoundDemands
from specplan.cost_models.rounds.matching import with_matching
from specplan.ir.plan import Plan, Round
from specplan.ir.types.matching import outcomes_of

NOTHING = -1
"""Stands where a source has no match; earlier versions wrote 0."""


@dataclass(frozen=True)
class Lengths(Trace):
    """Prices chains, up to any length, by replaying them on the prompts that were measured.

    Attributes:
        rows: per prompt, for every position, how many tokens of a chain are accepted when a round
            starts there; `NOTHING` where none is proposed.
    """

    rows: Rows
    kind: ClassVar[str] = "lengths"

    @cached_property
    def model(self) -> TraceModel:
        """Replays chains."""
        return TraceModel(self.rows, lengths=True)

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        return problem_of_rows(self.rows, NOTHING)

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A chain; how often none is proposed is known, too."""
        drafting = super().drafts(plan, item, demands)
        if isinstance(drafting, str):
            return drafting
        replay = self.model.outcome(drafting.parents, drafting.ranks)
        without = replay.share_begun(replay.traces.values == NOTHING)
        if len(outcomes_of(item)) != 2:
            return drafting
        shares = (1.0 - without, without)
        return replace(drafting, demands=with_matching(plan, item, demands, shares))


class TraceOfDrafts(TraceOfSeveral):
    """A trace that says of drafts of several shapes how far each is accepted."""

    @abstractmethod
    def lengths(self, *args: Any, **kwargs: Any) -> Rows:
        """Per prompt and position, the tokens accepted of a draft of a shape."""

    def cut(self, *shape: Hashable) -> Lengths:
        """The same as evidence of such drafts, made once; the arguments are those of `lengths`."""
        if shape not in self._made:
            self._made[shape] = Lengths(self.lengths(*shape))
        return self._made[shape]

    @cached_property
    def _made(self) -> dict[tuple[Hashable, ...], Lengths]:
        return {}


EVIDENCE = Lengths
