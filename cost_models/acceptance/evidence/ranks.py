"""Evidence `ranks`: which of a drafter's choices is accepted at every position of a text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from specplan.cost_models.acceptance.evidence.base import Rows, Trace, problem_of_rows
from specplan.cost_models.acceptance.trace_model import TraceModel


@dataclass(frozen=True)
class Ranks(Trace):
    """Prices static trees by replaying them on the prompts that were measured.

    Attributes:
        rows: per prompt, for every position of the target's continuation, the rank of the
            drafter's child that is accepted there, -1 for none.
    """

    rows: Rows
    kind: ClassVar[str] = "ranks"
    ranked: ClassVar[bool] = True

    @cached_property
    def model(self) -> TraceModel:
        """Replays trees."""
        return TraceModel(self.rows, lengths=False)

    def problem(self) -> str | None:
        """See `Evidence.problem`."""
        return problem_of_rows(self.rows, -1)


EVIDENCE = Ranks
