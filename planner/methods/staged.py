"""The draft model speculates too: the request's own text drafts for it, and it for the target.

Staged speculative decoding (Spector and Re 2023, arXiv 2308.04623): drafting is itself sped up by
a smaller drafter, here lookup in the text, so that a pass of the draft model gives one token and
those of the text's continuation that it agrees with. The draft is what the model would have drafted
alone: its own best tokens, or draws from its law, in fewer passes; only how many there are depends
on the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import TEXT, Drafter, Interleaved
from specplan.cost_models.acceptance.evidence.interleaved import DraftSegment
from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.interleaved import (
    drafted_in_stages,
    evidence_of_turns,
    interleaved_drafters,
)
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan

STAGES = (1, 2, 3, 4)
LENGTHS = (1, 2, 3, 5, 8)
DOMAINS = {
    "stages": Domain(STAGES, "passes of the draft model"),
    "length": Domain(LENGTHS, "tokens that the text proposes to each of them at most"),
}


@dataclass(frozen=True)
class StagedOptions(Options):
    """Which model drafts, and what drafts for it.

    Attributes:
        draft: name of the draft model.
        stages: its passes.
        length: tokens that it judges in each at most; it adds one.
    """

    draft: str
    stages: int
    length: int

    @property
    def nodes(self) -> int:
        """Drafted tokens at most."""
        return self.stages * (self.length + 1)

    @property
    def words(self) -> str:
        """`2 passes of draft, each over up to 3 of the text`."""
        words = "passes" if self.stages > 1 else "pass"
        return f"{self.stages} {words} of {self.draft}, each over up to {self.length} of the text"


class Staged(Method[StagedOptions]):
    """Pays where drafting takes long and outputs repeat their prompt or themselves."""

    name: ClassVar[str] = "staged"
    summary: ClassVar[str] = "a draft model drafts in few passes: the text speculates for it"
    paper: ClassVar[str] = "Spector and Re 2023, arXiv 2308.04623"
    acceptance: ClassVar[str] = "the draft model's token, and length of the copy, at every position"
    sources: ClassVar[tuple[str, ...]] = ("prompt_lookup",)
    needs_draft_model: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[StagedOptions] | Refusal]:
        """Per draft model, by passes and tokens judged in each."""
        if not facts.drafts:
            return [Refusal("any", "models.drafts names no draft model")]
        if not set(self.sources) <= set(facts.problem.sources):
            return [Refusal("any", 'the problem\'s sources leave out "prompt_lookup"')]
        return [_family(facts, draft) for draft in facts.drafts]

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """Every draft model in turns with the text."""
        return interleaved_drafters(facts, TEXT.name)

    def plan(self, facts: ProblemFacts, options: StagedOptions) -> Plan:
        """The draft model judges what the text proposes; the target judges what it keeps."""
        draft = options.draft
        match = facts.profiles[self.drafter(facts, options)].match or LOOKUP_MATCH
        stages = drafted_in_stages(
            draft, "@text", print_atom(match), options.stages, options.length,
            result="c", drawn=not facts.greedy,
        )  # fmt: skip
        judged = judge("%c", options.nodes, rule=None if facts.greedy else "token")
        body = f"{stages}\n{judged}\ncommit {cache_of(draft)} %e"
        return single_round_plan(facts, self.name, (draft,), body)

    def drafter(self, facts: ProblemFacts, options: StagedOptions) -> Drafter:
        """The draft model in turns with the text."""
        return Interleaved(options.draft, TEXT.name)


def _family(facts: ProblemFacts, draft: str) -> Family[StagedOptions] | Refusal:
    name = f"stages by {draft}"
    turns = evidence_of_turns(facts, draft, TEXT.name)
    if isinstance(turns, str):
        return Refusal(name, turns)
    settings = tuple(
        StagedOptions(draft, stages, length)
        for stages in STAGES
        for length in LENGTHS
        if turns.problem_of((DraftSegment("judged", length),)) is None
    )
    return Family(name, DOMAINS, settings)


METHOD = Staged()
