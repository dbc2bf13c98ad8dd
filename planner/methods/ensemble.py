"""A draft model drafts for the mean of several models' probabilities.

Speculative ensembles (Fu et al. 2025, arXiv 2502.01662): the mean of the target and another model
is verified instead of the target alone. The other model is the one that drafts, or a second target
with a pass of its own over the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option
from specplan.planner.templates.mixtures import LENGTHS, MixedOptions, mixed_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning


@dataclass(frozen=True)
class EnsembleOptions(MixedOptions):
    """Which model drafts, how far, and which model the target is averaged with."""

    reads = "chain of {length} by {draft}, mean with {second}"

    second: Annotated[str, Option("averaged with the target", drafts=True)]


class Ensemble(ProfiledByRunning[EnsembleOptions]):
    """An ensemble for little more than its members' shared verification; changes the output."""

    summary = "a draft model drafts for the mean of the target and another model"
    paper = "Fu et al. 2025, arXiv 2502.01662"
    differs = "All models weigh the same, and one model drafts where the paper's take turns."
    law = "stated"
    family = "chains"

    def settings(self, models: Sequence[str]) -> Iterator[EnsembleOptions]:
        """Every draft model with every other model, or with itself, by length."""
        return (
            EnsembleOptions(draft, length, second)
            for draft, second, length in product(models, models, LENGTHS)
        )

    def plan(self, facts: ProblemFacts, options: EnsembleOptions) -> Plan:
        """Draft, verify, take the mean, accept."""
        others = () if options.second == options.draft else (options.second,)
        return mixed_plan(facts, self, options.draft, options.length, "average", others)


METHOD = Ensemble()
