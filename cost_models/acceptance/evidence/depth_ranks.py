"""Evidence `depth_ranks`: which of a head's choices is accepted, by position and by depth.

A head drafts its first token from the target's states and others from its own, so that the same
token of a text has other ranks in a round that began one token earlier. Where a round begins is
replayed; children are best ranks, given tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from specplan.cost_models.acceptance.evidence.base import Drafting, TraceOfSeveral
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import RoundDemands
from specplan.ir.plan import Plan, Round
from specplan.ir.types.value_types import depths_of


@dataclass(frozen=True)
class DepthRanks(TraceOfSeveral):
    """Prices static trees by replaying them on the prompts that were measured.

    Attributes:
        depth: levels that were measured.
        rows: per prompt, for every position of the target's continuation, the rank of its token
            among the choices at depth 1, 2, ... `depth` of rounds that began so far before; -1 for
            none, and where no round could begin.
    """

    depth: int
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    kind: ClassVar[str] = "depth_ranks"
    ranked: ClassVar[bool] = True

    @cached_property
    def model(self) -> TraceModel:
        """Replays trees."""
        return TraceModel(self.rows, lengths=False)

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A static tree of no more levels than were measured; see `Evidence.drafts`."""
        parents = demands.judged[-1].parents if demands.judged else None
        deepest = max(depths_of(parents), default=0) if parents is not None else 0
        if deepest > self.depth:
            return f"the profile knows {self.depth} levels, and the plan drafts {deepest}"
        return super().drafts(plan, item, demands)

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 1:
            return f"ranks of {self.depth!r} levels"
        for row in self.rows:
            for ranks in row:
                if len(ranks) != self.depth or any(rank < -1 for rank in ranks):
                    return f"{list(ranks)} are no ranks at {self.depth} depths"
        return None if any(self.rows) else "holds no measurement"


EVIDENCE = DepthRanks
