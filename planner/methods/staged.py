"""The draft model speculates too: the request's own text drafts for it, and it for the target.

Staged speculative decoding (Spector and Re 2023, arXiv 2308.04623): drafting is itself sped up by
a smaller drafter, here lookup in the text, so that a pass of the draft model gives one token and
those of the text's continuation that it agrees with. The draft is what the model would have drafted
alone: its own best tokens, or draws from its distribution, in fewer passes; only their number
depends on the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT, Drafter, Interleaved
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Method, Option, Options, Refusal
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.several_drafters import (
    drafted_in_turns,
    evidence_of_turns,
    interleaved_drafters,
)

STAGES = (1, 2, 3, 4)
LENGTHS = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class StagedOptions(Options):
    """Which model drafts, and what drafts for it."""

    reads = "{stages} {passes} of {draft}, each over up to {length} of the text"

    draft: DraftName
    stages: Annotated[int, Option("passes of the draft model")]
    length: Annotated[int, Option("tokens that the text proposes to each of them at most")]

    @property
    def nodes(self) -> int:
        """Drafted tokens at most: each pass adds one to those that it judges."""
        return self.stages * (self.length + 1)

    @property
    def passes(self) -> str:
        """One pass or several."""
        return "passes" if self.stages > 1 else "pass"


class Staged(Method[StagedOptions]):
    """Pays where drafting takes long and outputs repeat their prompt or themselves."""

    summary = "a draft model drafts in few passes: the text speculates for it"
    paper = "Spector and Re 2023, arXiv 2308.04623"
    differs = (
        "The draft is a chain, not a tree, and the text drafts for the draft model, not an n-gram "
        "model of its samples."
    )
    acceptance = "the draft model's token, and length of the copy, at every position"
    sources = ("prompt_lookup",)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[StagedOptions] | Refusal]:
        """Per draft model, by passes and tokens judged in each."""
        reason = self.missing_source(facts)
        if not facts.drafts:
            reason = "models.drafts names no draft model"
        if reason is not None:
            return [Refusal("any", reason)]
        return [_family(facts, draft) for draft in facts.drafts]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """Every draft model in turns with the text."""
        return interleaved_drafters(facts, TEXT.name)

    def plan(self, facts: ProblemFacts, options: StagedOptions) -> Plan:
        """The draft model judges what the text proposes; the target judges what is left."""
        match = facts.profiles[self.drafter(facts, options)].match or LOOKUP_MATCH
        lookup, drawn = f"@text match={print_atom(match)}", not facts.greedy
        drafted = drafted_in_turns(
            options.draft, lookup, options.stages, options.length, drawn=drawn
        )
        models = (options.draft,)
        return draft_and_verify(facts, self, drafted, options.nodes, models=models, rule="token")

    def drafter(self, facts: ProblemFacts, options: StagedOptions) -> Drafter:
        """The draft model in turns with the text."""
        return Interleaved(options.draft, TEXT.name)


def _family(facts: ProblemFacts, draft: str) -> Family[StagedOptions] | Refusal:
    name, turns = f"stages by {draft}", evidence_of_turns(facts, draft, TEXT.name)
    if isinstance(turns, str):
        return Refusal(name, turns)
    lengths = [n for n in LENGTHS if turns.problem_of((DraftSegment("judged", n),)) is None]
    return Family.of(name, (StagedOptions(draft, *one) for one in product(STAGES, lengths)))


METHOD = Staged()
