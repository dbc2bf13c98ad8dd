"""Candidates of a search and what became of them: a price, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specplan.cost_models.estimate import Estimate
from specplan.ir.plan import Plan
from specplan.ir.printer import print_plan


@dataclass(frozen=True)
class Candidate:
    """One setting of a method, or a family of them that was refused as a whole.

    Attributes:
        method: name of the method.
        family: name of the family of settings.
        options: the setting by name; empty for a refused family.
        words: the setting in a few words.
        proposer: whose acceptance profile priced it; None when nothing is drafted.
        plan: its plan; None for a refused family.
        estimates: one per batch size of the workload, in that order; empty without a price.
        refusal: why it cannot be chosen; None when it can.
    """

    method: str
    family: str
    options: Mapping[str, Any]
    words: str
    proposer: str | None = None
    plan: Plan | None = None
    estimates: tuple[Estimate, ...] = ()
    refusal: str | None = None

    @property
    def priced(self) -> bool:
        """Whether it has estimates; a limit may still refuse it."""
        return bool(self.estimates)

    @property
    def admissible(self) -> bool:
        """Whether it may be chosen."""
        return self.priced and self.refusal is None

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """Sorts simpler plans first: models run, nodes judged, ops of a round with a price."""
        assert self.plan is not None, "only plans are compared"
        parts = self.estimates[0].breakdown
        judged = max((part.width for part in parts if part.op.startswith("accept")), default=0)
        return len(self.plan.models), judged, sum(part.times for part in parts)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; the plan as text."""
        return {
            "method": self.method,
            "family": self.family,
            "options": dict(self.options),
            "words": self.words,
            "proposer": self.proposer,
            "plan": None if self.plan is None else print_plan(self.plan),
            "estimates": [estimate_as_dict(estimate) for estimate in self.estimates],
            "refusal": self.refusal,
        }


def estimate_as_dict(estimate: Estimate) -> dict[str, Any]:
    """An estimate ready for JSON: seconds, bytes and tokens, intervals as mean, low and high."""
    result = asdict(estimate)
    result["memory"] = {part.name: part.bytes for part in estimate.memory.parts}
    result["memory_bytes"] = estimate.memory.total
    result["breakdown"] = [
        {
            "op": part.op,
            "model": part.model,
            "width": part.width,
            "times": part.times,
            "seconds": part.seconds.median,
        }
        for part in estimate.breakdown
    ]
    result["assumptions"] = list(estimate.assumptions)
    return result
