"""Candidates of a search and what became of them: a price, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.quality.certificate import Loss
from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan
from specplan.ir.types.infer import infer_round
from specplan.ir.types.value_types import TreeType
from specplan.planner.explain.numbers import interval_data, parts_data
from specplan.planner.reasons import Cause, cause_of


@dataclass(frozen=True)
class Candidate:
    """One setting of a method, or a family of them that was refused as a whole.

    Attributes:
        method: name of the method.
        family: name of the family of settings.
        options: the setting by name; empty for a refused family.
        words: the setting in a few words.
        drafter: whose acceptance profile priced it; None when nothing is drafted.
        plan: its plan; None for a refused family.
        estimate: its price, an array entry for each cell of the workload; None without one.
        refusal: why it cannot be chosen; None when it can.
        unsupported: why the backend cannot run it; None when it can.
        by_cell: of a schedule, the candidate whose round runs in each cell of the workload.
        loss: what its output loses against the target; None where nothing, or not measured.
        alone: of a schedule, the cells in which its drafting models do not fit in memory; they are
            not loaded there.
        head: family of the head that drafts, "" for other drafters.
    """

    method: str
    family: str
    options: Mapping[str, Any]
    words: str
    drafter: Drafter | None = None
    plan: Plan | None = None
    estimate: Estimate | None = None
    refusal: str | None = None
    unsupported: str | None = None
    by_cell: tuple[Candidate, ...] = ()
    alone: tuple[int, ...] = ()
    loss: Loss | None = None
    head: str = ""

    @property
    def named(self) -> dict[str, str]:
        """What names it on screens (`specplan.planner.answer.names`), ready for JSON."""
        named = {"method": self.method, "words": self.words}
        return {**named, "head": self.head} if self.head else named

    @cached_property
    def estimates(self) -> tuple[Estimate, ...]:
        """One for each cell of the workload, in their order; empty without a price."""
        if self.estimate is None:
            return ()
        cells = self.estimate.cells()
        if not self.by_cell:
            return cells
        parts = (part.estimates[index] for index, part in enumerate(self.by_cell))
        return tuple(
            replace(
                whole,
                breakdown=part.breakdown,
                assumptions=part.assumptions,
                segments=part.segments,
            )
            for whole, part in zip(cells, parts, strict=True)
        )

    @property
    def parts(self) -> tuple[tuple[Candidate, tuple[int, ...]], ...]:
        """The candidates of a schedule with the cells in which each runs; else itself in all."""
        if not self.by_cell:
            cells_priced = 0 if self.estimate is None else np.size(self.estimate.batch)
            return ((self, tuple(range(cells_priced))),)
        cells: dict[int, list[int]] = {}
        for cell, part in enumerate(self.by_cell):
            cells.setdefault(id(part), []).append(cell)
        members = {id(part): part for part in self.by_cell}
        return tuple((members[key], tuple(places)) for key, places in cells.items())

    @property
    def priced(self) -> bool:
        """Whether it has a price; a limit may still refuse it."""
        return self.estimate is not None

    @property
    def admissible(self) -> bool:
        """Whether it may be chosen."""
        return self.priced and self.refusal is None

    @property
    def cause(self) -> Cause | None:
        """Why it was not tried or may not be chosen, as data; None where it may."""
        if self.unsupported is not None:
            return Cause.BACKEND
        if self.refusal is None:
            return None
        return Cause.LIMIT if self.priced else cause_of(self.refusal)

    @property
    def simplicity(self) -> tuple[float, ...]:
        """Sorts simpler plans first: rounds, models run, nodes judged, ops with a price.

        Of rounds that end early at some loads, the ops of the longest.
        """
        return self.simplicity_at(None)

    def simplicity_at(self, cell: int | None) -> tuple[float, ...]:
        """The simplicity in one cell of the workload, for plans of one method; None for all."""
        assert self.plan is not None and self.estimate is not None, "only prices are compared"
        if self.by_cell:
            rounds = [part.simplicity for part in self.by_cell]
            return len(self.plan.rounds), *(
                max(numbers) for numbers in list(zip(*rounds, strict=True))[1:]
            )
        parts = self.estimate.breakdown
        judged = max((part.width for part in parts if part.op.startswith("accept")), default=0)
        ran = np.asarray(sum(part.times for part in parts))
        if cell is not None and ran.ndim:
            ran = np.broadcast_to(ran, np.shape(self.estimate.batch))[cell]
        return len(self.plan.rounds), len(self.plan.models), judged, float(np.max(ran))

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; the plan as text."""
        return {
            **self.named,
            "family": self.family,
            "options": dict(self.options),
            "drafter": None if self.drafter is None else str(self.drafter),
            "plan": None if self.plan is None else print_plan(self.plan),
            "estimates": [estimate_as_dict(estimate) for estimate in self.estimates],
            "refusal": self.refusal,
            "unsupported": self.unsupported,
            **({} if self.loss is None else {"loss": asdict(self.loss)}),
        }


def estimate_as_dict(estimate: Estimate) -> dict[str, Any]:
    """An estimate ready for JSON: seconds, bytes and tokens, intervals as mean, low and high."""
    result = asdict(estimate)
    result["memory"] = {part.name: part.bytes for part in estimate.memory.parts}
    result["memory_bytes"] = interval_data(estimate.memory.interval)
    result["breakdown"] = parts_data(estimate.breakdown)
    result["assumptions"] = list(estimate.assumptions)
    return result


def judged(candidate: Candidate) -> TreeType | None:
    """The tree that the candidate judges, of its first round that drafts; None without any."""
    assert candidate.plan is not None
    steps = (s for item in candidate.plan.rounds for s in infer_round(candidate.plan, item).steps)
    trees = [step.reads[step.op.judges] for step in steps if step.op.judges is not None]
    shapes = [tree for tree in trees if isinstance(tree, TreeType)]
    return next((tree for tree in shapes if tree.nodes), shapes[0] if shapes else None)
