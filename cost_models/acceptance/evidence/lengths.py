"""Evidence `lengths`: how far a draft that begins at a position is accepted.

Of copies from a source, and of drafts that depend on where the round began, such as those of a
model without some of its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from specplan.cost_models.acceptance.evidence.base import Rows, Trace, problem_of_rows
from specplan.cost_models.acceptance.trace_model import TraceModel


@dataclass(frozen=True)
class Lengths(Trace):
    """Prices chains, up to any length, by replaying them on the prompts that were measured.

    Attributes:
        rows: per prompt, for every position, how many tokens of a chain are accepted when a round
            starts there.
    """

    rows: Rows
    kind: ClassVar[str] = "lengths"

    @cached_property
    def model(self) -> TraceModel:
        """Replays chains."""
        return TraceModel(self.rows, lengths=True)

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        return problem_of_rows(self.rows, 0)


EVIDENCE = Lengths
