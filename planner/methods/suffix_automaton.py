"""Drafts copied from where the longest end of the request's own text occurred before.

SAM decoding (Hu et al. 2024, arXiv 2411.10666): a suffix automaton finds the longest match, of any
length in theory and of up to 32 tokens here, in constant time however long the text is. Drafts are
certain proposals: at a temperature above 0 one is accepted with the target's probability of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, Model, Source
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Refusal
from specplan.planner.templates.source_drafts import ChainOptions, chains, source_plan

LENGTHS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
OWN_TEXT = DRAFT_SOURCES["automaton"]


class SuffixAutomaton(Method[ChainOptions]):
    """Costs no draft model; pays where outputs repeat long passages of their own text."""

    name: ClassVar[str] = "suffix_automaton"
    summary: ClassVar[str] = "drafts copied after the longest match in the request's own text"
    paper: ClassVar[str] = "Hu et al. 2024, arXiv 2411.10666"
    acceptance: ClassVar[str] = "length of the copy that the text goes on with"
    memory: ClassVar[str] = "65,536 tokens of each request, 900 bytes each"
    sources: ClassVar[tuple[str, ...]] = ("automaton",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (Source(OWN_TEXT.word),)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[ChainOptions] | Refusal]:
        """Chains of 2 to 32 tokens."""
        return [chains(facts, self, OWN_TEXT, "chain from the automaton", LENGTHS)]

    def plan(self, facts: ProblemFacts, options: ChainOptions) -> Plan:
        """Grow the automaton, copy, verify, accept."""
        wanted = f"length={options.length}"
        return source_plan(facts, self.name, OWN_TEXT, wanted, options.length)

    def drafter(self, facts: ProblemFacts, options: ChainOptions) -> Drafter | None:
        """The automaton."""
        return Source(OWN_TEXT.word)


METHOD = SuffixAutomaton()
