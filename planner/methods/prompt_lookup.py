"""Drafts copied from an earlier occurrence of the last tokens in the request's own text.

Prompt lookup decoding: the continuation of the most recent match of the longest suffix is
proposed as a chain; its tokens are certain proposals, so that at a temperature above 0 one is
accepted with the target's probability of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import TEXT, Drafter, Model, Source
from specplan.ir.plan import Plan
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import judge, single_round_plan

LENGTHS = tuple(range(2, 17))


@dataclass(frozen=True)
class PromptLookupOptions(Options):
    """What is looked up.

    Attributes:
        shortest_match: shortest suffix of the text looked for, in tokens.
        longest_match: longest suffix of the text looked for, in tokens; tried first.
        length: tokens proposed at most.
    """

    shortest_match: int
    longest_match: int
    length: int

    @property
    def words(self) -> str:
        """`up to 8 tokens after a match of 1 to 3`."""
        match = f"{self.shortest_match} to {self.longest_match}"
        return f"up to {self.length} tokens after a match of {match}"


class PromptLookup(Method[PromptLookupOptions]):
    """Costs no draft model; pays where outputs repeat their prompt or themselves."""

    name: ClassVar[str] = "prompt_lookup"
    engine_drafter: ClassVar[str] = "text"
    summary: ClassVar[str] = "drafts copied from the request's own text after a matching suffix"
    paper: ClassVar[str] = "Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding"
    acceptance: ClassVar[str] = "length of the copy that the text goes on with"
    sources: ClassVar[tuple[str, ...]] = ("prompt_lookup",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (TEXT,)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[PromptLookupOptions] | Refusal]:
        """Chains of 2 to 16 tokens, with the matches that acceptance was measured for."""
        name = "chain from the text"
        if self.name not in facts.problem.sources:
            return [Refusal(name, 'the problem\'s sources leave out "prompt_lookup"')]
        if TEXT not in facts.profiles:
            return [Refusal(name, facts.missing_profile(TEXT))]
        shortest, longest = facts.profiles[TEXT].match or LOOKUP_MATCH
        domains = {
            "shortest_match": Domain((shortest,), "shortest suffix looked for, tokens"),
            "longest_match": Domain((longest,), "longest suffix looked for, tokens"),
            "length": Domain(LENGTHS, "tokens proposed at most"),
        }
        settings = tuple(PromptLookupOptions(shortest, longest, length) for length in LENGTHS)
        return [Family(name, domains, settings)]

    def plan(self, facts: ProblemFacts, options: PromptLookupOptions) -> Plan:
        """Look up, verify, accept; a request without a match decodes one token."""
        match = f"[{options.shortest_match}, {options.longest_match}]"
        body = (
            "%t0 = root\n"
            f"%c = lookup @text %t0 at=%t0 match={match} length={options.length}\n"
            + judge("%c", options.length, rule=None if facts.greedy else "recursive")
        )
        return single_round_plan(facts, self.name, (), body)

    def drafter(self, facts: ProblemFacts, options: PromptLookupOptions) -> Drafter | None:
        """The text itself."""
        return TEXT


METHOD = PromptLookup()
