"""Evidence `fallback`: chains copied from a source, or drafted by a model where it has no match.

Along a target's own text it is measured at every position how much of either chain the text goes on
with. Which of the two a round drafts depends on the position where it begins alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.evidence.base import Drafting, Rows
from specplan.cost_models.acceptance.evidence.lengths import NOTHING, TraceOfDrafts
from specplan.cost_models.acceptance.replay import Traces
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import Matching, RoundDemands, round_demands
from specplan.cost_models.rounds.matching import by_outcome
from specplan.ir.plan import Plan, Round


@dataclass(frozen=True)
class FallbackTrace(TraceOfDrafts):
    """How far the text goes on with a source's chain and with a model's.

    Attributes:
        copied: tokens of the source's chains that were compared.
        drafted: tokens of the model's chains that were.
        rows: per prompt, for every position of the target's continuation: accepted tokens of the
            source's chain, `NOTHING` without a match; and of the model's.
    """

    copied: int
    drafted: int
    rows: tuple[tuple[tuple[int, int], ...], ...]
    kind: ClassVar[str] = "fallback"

    @cached_property
    def model(self) -> TraceModel:
        """What is accepted of the model alone."""
        return TraceModel([[drafted for _, drafted in row] for row in self.rows], lengths=True)

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A chain of the source where it has a match, else of the model."""
        forms = by_outcome(plan, item)
        if len(forms) != 2 or forms[1] == round_demands(plan, item):
            return "a source with a model behind it says nothing of drafts by one of the two"
        matched, unmatched = forms
        lengths = matched.judged[-1].depth, unmatched.judged[-1].depth
        problem = self.problem_of(*lengths)
        if problem is not None:
            return problem
        evidence = self.cut(*lengths)
        drafting = Drafting.of_path(demands, max(lengths), evidence, lag_shares=None)
        replay = evidence.model.outcome(drafting.parents, drafting.ranks)
        without = replay.share_begun(self._unmatched)
        matching = Matching((1.0 - without, without), (matched, unmatched))
        return replace(drafting, demands=replace(demands, matching=matching))

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        for number in (self.copied, self.drafted):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                return f"chains of {number!r} tokens"
        if not any(self.rows):
            return "holds no measurement"
        for row in self.rows:
            for pair in row:
                copied, drafted = pair if len(pair) == 2 else (self.copied + 1, 0)
                if not (NOTHING <= copied <= self.copied and 0 <= drafted <= self.drafted):
                    return f"{[*pair]} is out of range"
        return None

    def problem_of(self, copied: int, drafted: int) -> str | None:
        """Why it says nothing of chains of these lengths; None where it does."""
        if copied > self.copied:
            return f"{self.copied} tokens of the source were compared, and {copied} are drafted"
        if drafted > self.drafted:
            return f"{self.drafted} tokens of the model were compared, and {drafted} are drafted"
        return None

    def lengths(self, copied: int, drafted: int) -> Rows:
        """Per prompt and position, accepted tokens of chains of at most these lengths."""
        return tuple(
            tuple(min(own, drafted) if copy == NOTHING else min(copy, copied) for copy, own in row)
            for row in self.rows
        )

    @cached_property
    def _unmatched(self) -> NDArray[np.bool_]:
        """Where the source has no match, [positions, prompts]."""
        copied = Traces.of([[copied for copied, _ in row] for row in self.rows])
        unmatched: NDArray[np.bool_] = copied.values == NOTHING
        return unmatched


EVIDENCE = FallbackTrace
