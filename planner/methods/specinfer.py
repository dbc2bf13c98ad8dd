"""Several drafters' chains, merged into one tree that the target verifies in one pass.

SpecInfer (Miao et al. 2023, arXiv 2305.09781), its merge of several speculators: each drafts a
chain; the chains are joined at the root, and equal tokens continue together. The tree is judged by
its multi-step rule: children of a node one after another, each against the distribution of the
drafter that drew it, which keeps the target's distribution at every temperature. At temperature 0
chains are best choices. Drafters are any number of draft models and the text itself (prompt
lookup), whose continuation counts as certain. Trees of one model's first ranks, the paper's
expansion, are among those of `draft_model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.several_drafters import joined_chains, models_of

LENGTHS = (2, 3, 4, 6)


@dataclass(frozen=True)
class SpecInferOptions(Options):
    """Who drafts, and how much."""

    reads = "chains of {length} by {drafters}, merged"

    drafters: Annotated[tuple[str, ...], Option("who drafts a chain each", drafts=True)]
    length: Annotated[int, Option("tokens of each chain")]

    @property
    def nodes(self) -> int:
        """Drafted tokens, those that several drafters agree on counted for each."""
        return len(self.drafters) * self.length


class SpecInfer(ProfiledByRunning[SpecInferOptions]):
    """Pays where drafters err at different places."""

    summary = "chains of several drafters, merged into one tree"
    paper = "Miao et al. 2023, arXiv 2305.09781"
    differs = (
        "Children are judged in a fixed order and not in a random one; draft models learn what the "
        "ones before miss token by token (`specplan train --after`), the paper's text by text."
    )
    shape = "dynamic tree"
    sources = ("prompt_lookup",)
    family = "merged chains"

    def settings(self, models: Sequence[str]) -> Iterator[SpecInferOptions]:
        """Every two and more of the draft models and the text, by length."""
        every = [*models, TEXT.name]
        groups = (group for size in range(2, len(every) + 1) for group in combinations(every, size))
        return (SpecInferOptions(group, length) for group, length in product(groups, LENGTHS))

    def plan(self, facts: ProblemFacts, options: SpecInferOptions) -> Plan:
        """Draft in turn, merge, verify, accept."""
        models = models_of(options.drafters)
        drafted = joined_chains(options.drafters, options.length, drawn=not facts.greedy)
        return draft_and_verify(facts, self, drafted, options.nodes, models=models)


METHOD = SpecInfer()
