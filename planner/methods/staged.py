"""The draft model speculates too: the request's own text drafts for it, and it for the target.

Staged speculative decoding (Spector and Re 2023, arXiv 2308.04623): drafting is itself sped up by
a smaller drafter, here lookup in the text, so that a pass of the draft model gives one token and
those of the text's continuation that it agrees with. The draft is what the model would have drafted
alone: its own best tokens, or draws from its distribution, in fewer passes; only their number
depends on the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.several_drafters import InTurns, TurnsOptions, drafted_in_turns

STAGES = (1, 2, 3, 4)
LENGTHS = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class StagedOptions(TurnsOptions):
    """Which model drafts, and what drafts for it."""

    reads = "{stages} {passes} of {draft}, each over up to {length} of the text"

    stages: Annotated[int, Option("passes of the draft model")]
    length: Annotated[int, Option("tokens that the text proposes to each of them at most")]

    @property
    def segments(self) -> tuple[DraftSegment, ...]:
        """The draft model judges what the text proposes, pass after pass."""
        return (DraftSegment("judged", self.length),) * self.stages

    @property
    def passes(self) -> str:
        """One pass or several."""
        return "passes" if self.stages > 1 else "pass"


class Staged(InTurns[StagedOptions]):
    """Pays where drafting takes long and outputs repeat their prompt or themselves."""

    summary = "a draft model drafts in few passes: the text speculates for it"
    paper = "Spector and Re 2023, arXiv 2308.04623"
    differs = (
        "The draft is a chain, not a tree, and the text drafts for the draft model, not an n-gram "
        "model of its samples."
    )
    acceptance = "the draft model's token, and length of the copy, at every position"
    sources = ("prompt_lookup",)
    partner = TEXT.name

    def settings(self, draft: str) -> Mapping[str, Iterable[StagedOptions]]:
        """By passes and tokens judged in each."""
        sizes = product(STAGES, LENGTHS)
        return {f"stages by {draft}": (StagedOptions(draft, *size) for size in sizes)}

    def plan(self, facts: ProblemFacts, options: StagedOptions) -> Plan:
        """The draft model judges what the text proposes; the target judges what is left."""
        match = facts.profiles[self.drafter(facts, options)].match or LOOKUP_MATCH
        lookup, models = f"@text match={print_atom(match)}", (options.draft,)
        drafted = drafted_in_turns(
            options.draft, lookup, options.stages, options.length, drawn=not facts.greedy
        )
        return draft_and_verify(facts, self, drafted, options.nodes, models=models, rule="token")


METHOD = Staged()
