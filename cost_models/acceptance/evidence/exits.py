"""Evidence `exits`: which conditional parts of a round each token went through.

Of plans that draft nothing and let a token leave the model early. A round emits one token; what it
takes depends on how often its regions under `when` are entered, and of a region that was put off,
on how many tokens wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from specplan.cost_models.acceptance.evidence.base import (
    Drafting,
    Evidence,
    Rows,
    problem_of_rows,
)
from specplan.cost_models.acceptance.hazards import posterior
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.intervals import Interval
from specplan.cost_models.rounds.demands import ForwardDemand, RoundDemands
from specplan.ir.plan import Plan, Round, walk


@dataclass(frozen=True)
class Exits(Evidence):
    """What a plan's rounds entered, token by token.

    Attributes:
        entered: per prompt, for every token of its output, the sum of 2^i over the regions under
            `when` that its round entered, i counting them in the order of the round.
    """

    entered: Rows
    kind: ClassVar[str] = "exits"
    of_exits: ClassVar[bool] = True

    @cached_property
    def model(self) -> TraceModel:
        """Nothing is drafted, and nothing accepted."""
        return TraceModel(tuple((0,) * len(row) for row in self.entered), lengths=True)

    @property
    def traces(self) -> Sequence[Sequence[Any]]:
        """What was entered, per prompt and token."""
        return self.entered

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        return problem_of_rows(self.entered, 0)

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A round that drafts nothing, its conditional parts by their shares."""
        if demands.judged[-1].nodes:
            return "the profile tells where tokens leave the model, and this plan drafts"
        regions = sum(op.keyword == "when" for op in walk(item.ops))
        if regions > 62 or any(mask >> regions for row in self.entered for mask in row):
            return "the profile was measured of rounds with other regions"
        entered = tuple(self.share(place) for place in range(regions))
        waiting = {
            step.cache: self._waiting(step)
            for step in demands.steps
            if isinstance(step, ForwardDemand) and step.pending and step.region is not None
        }
        return Drafting(replace(demands, entered=entered), lag_shares=waiting)

    def share(self, place: int) -> Interval:
        """Share of rounds of one request that enter a region."""
        masks = [mask for row in self.entered for mask in row]
        return posterior(sum(mask >> place & 1 for mask in masks), len(masks))

    def _waiting(self, step: ForwardDemand) -> float:
        """Tokens that wait beside the root, of all that may, in the mean of the passes that run."""
        assert step.region is not None
        gaps, gap = [], 0
        for row in self.entered:
            gap = 0
            for mask in row:
                if mask >> step.region & 1:
                    gaps.append(min(gap, step.pending))
                    gap = 0
                else:
                    gap += 1
        return sum(gaps) / len(gaps) / step.pending if gaps else 0.0


EVIDENCE = Exits
