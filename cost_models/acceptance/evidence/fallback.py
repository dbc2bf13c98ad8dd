"""Evidence `fallback`: chains copied from a source, or drafted by a model where it has no match.

Along a target's own text it is measured at every position how much of either chain the text goes on
with. Which of the two a round drafts depends on the position where it begins alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from specplan.cost_models.acceptance.evidence.base import Drafting, Rows, TraceOfSeveral
from specplan.cost_models.acceptance.evidence.lengths import NOTHING, Lengths
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import Matching, RoundDemands
from specplan.cost_models.rounds.matching import by_match
from specplan.ir.plan import Plan, Round


@dataclass(frozen=True)
class FallbackTrace(TraceOfSeveral):
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
        forms = by_match(plan, item)
        if forms is None:
            return "a source with a model behind it says nothing of drafts by one of the two"
        matched, unmatched = forms
        lengths = matched.judged[-1].depth, unmatched.judged[-1].depth
        problem = self.problem_of(*lengths)
        if problem is not None:
            return problem
        evidence, without = self._of_chains(*lengths)
        matching = Matching(without, matched, unmatched)
        depth = max(lengths)
        path = tuple(range(-1, depth - 1)), (0,) * depth
        return Drafting(replace(demands, matching=matching), *path, evidence)

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

    def _of_chains(self, copied: int, drafted: int) -> tuple[Lengths, float]:
        """Evidence of such chains, and the share of rounds without a match; made once."""
        if (copied, drafted) not in self._made:
            accepted = self.lengths(copied, drafted)
            self._made[copied, drafted] = Lengths(accepted), self._without(accepted)
        return self._made[copied, drafted]

    @cached_property
    def _made(self) -> dict[tuple[int, int], tuple[Lengths, float]]:
        return {}

    def _without(self, accepted: Rows) -> float:
        begun = [
            row[place][0] == NOTHING
            for row, lengths in zip(self.rows, accepted, strict=True)
            for place in _places(lengths)
        ]
        return sum(begun) / len(begun)


def _places(accepted: Sequence[int]) -> Iterator[int]:
    """Where rounds begin, the first at the first position."""
    place = 0
    while place < len(accepted):
        yield place
        place += accepted[place] + 1


EVIDENCE = FallbackTrace
