"""Evidence `copies`: how far copies of the text are accepted, and after how long a match.

A copy follows the latest occurrence of the longest suffix that the text has twice. Which matches
are long enough to copy after, and how far, follows from one trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.evidence.base import Drafting, Rows, judged_several_times
from specplan.cost_models.acceptance.evidence.lengths import NOTHING, TraceOfDrafts
from specplan.cost_models.acceptance.replay import Traces
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.rounds.demands import RoundDemands
from specplan.cost_models.rounds.matching import with_matching
from specplan.ir.ops import Lookup
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.types.matching import NO_MATCH, deciding_lookups
from specplan.ir.values import TEXT_STATE

Copy = tuple[int, int, int]
"""A lookup's shortest and longest match, and the tokens that it copies at most."""


@dataclass(frozen=True)
class Copies(TraceOfDrafts):
    """Prices copies of all lengths, after matches of all lengths, by replaying them.

    Attributes:
        longest: longest suffix that was looked for, tokens.
        copied: tokens of a copy that were compared.
        rows: per prompt, for every position of the target's continuation: tokens of the longest
            suffix that has an earlier occurrence, 0 where none has; and accepted tokens of the copy
            that follows it.
    """

    longest: int
    copied: int
    rows: tuple[tuple[tuple[int, int], ...], ...]
    kind: ClassVar[str] = "copies"

    @cached_property
    def model(self) -> TraceModel:
        """What is accepted of copies after every match."""
        return self.cut((1, self.longest, self.copied)).model

    def drafts(self, plan: Plan, item: Round, demands: RoundDemands) -> Drafting | str:
        """A chain of the first lookup that has a match; how often each is it is known, too."""
        every = tuple(op for op in walk(item.ops) if isinstance(op, Lookup))
        lookups = deciding_lookups(item) or every[: len(every) == 1]
        copied = all(one.source == TEXT_STATE and one.children == 1 for one in lookups)
        longest = max((one.length for one in lookups), default=0)
        reason = judged_several_times(demands)
        if reason is not None or not copied or longest != demands.judged[-1].nodes:
            return reason or "copies after matches say nothing of trees, or of drafts by others"
        copies = [_copy(one) for one in lookups]
        problem = self.problem_of(copies)
        if problem is not None:
            return problem
        evidence = self.cut(*copies)
        drafting = Drafting.of_path(demands, longest, evidence, lag_shares=None)
        replay = evidence.model.outcome(drafting.parents, drafting.ranks)
        first = Traces.of([row.tolist() for row in self._first(copies)]).values
        outcomes = (*range(len(copies)), NO_MATCH)
        shares = [replay.share_begun(first == outcome) for outcome in outcomes]
        return replace(drafting, demands=with_matching(plan, item, demands, shares))

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        for number in (self.longest, self.copied):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                return f"copies of {number!r} tokens"
        if not any(self.rows):
            return "holds no measurement"
        for pair in (pair for row in self.rows for pair in row):
            matched, accepted = pair if len(pair) == 2 else (0, 1)
            most = self.copied if matched else 0
            if not (0 <= matched <= self.longest and 0 <= accepted <= most):
                return f"{[*pair]} is out of range"
        return None

    def problem_of(self, copies: Sequence[Copy]) -> str | None:
        """Why it says nothing of lookups that follow one another; None where it does."""
        least = self.longest + 1
        for shortest, longest, length in copies:
            if shortest < 1 or longest < least - 1:
                return f"matches of {shortest} to {longest} tokens were not measured as such"
            if length > self.copied:
                return f"{self.copied} tokens of copies were compared, and {length} are drafted"
            least = min(least, shortest)
        return None

    def lengths(self, *copies: Copy) -> Rows:
        """Accepted tokens of the first of some lookups that has a match."""
        most = np.array([*(length for *_, length in copies), NOTHING])  # `NO_MATCH` reads the last
        pairs = zip(self._first(copies), self._positions, strict=True)
        accepted = (np.minimum(most[first], of[:, 1]) for first, of in pairs)
        return tuple(tuple(row.tolist()) for row in accepted)

    def _first(self, copies: Sequence[Copy]) -> list[NDArray[np.int64]]:
        """Per prompt and position, the number of the first lookup that has a match."""
        by_match = np.full(self.longest + 1, NO_MATCH)
        for number, (shortest, *_) in reversed([*enumerate(copies)]):
            by_match[shortest:] = number
        return [by_match[of[:, 0]] for of in self._positions]

    @cached_property
    def _positions(self) -> list[NDArray[np.int64]]:
        """The rows, `[positions, 2]` each."""
        return [np.array(row, dtype=np.int64).reshape(-1, 2) for row in self.rows]


def _copy(lookup: Lookup) -> Copy:
    shortest, longest = lookup.match or (0, 0)
    return shortest, longest, lookup.length


EVIDENCE = Copies
