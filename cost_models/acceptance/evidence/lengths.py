"""Evidence `lengths`: how far a draft that begins at a position is accepted.

Of copies from a source, and of drafts that depend on where the round began, such as those of a
model without some of its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from specplan.cost_models.acceptance.evidence.base import Rows, Trace, problem_of_rows
from specplan.cost_models.acceptance.trace_model import TraceModel

NOTHING = -1
"""Stands where a source proposes nothing; earlier versions wrote 0."""


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

    def silent(self, parents: Sequence[int], ranks: Sequence[int]) -> float:
        """See `Evidence.silent`."""
        return self.model.outcome(parents, ranks).silent


EVIDENCE = Lengths
