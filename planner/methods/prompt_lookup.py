"""Drafts copied from an earlier occurrence of the last tokens in the request's own text.

Prompt lookup decoding: the continuation of the most recent match of the longest suffix is
proposed as a chain; its tokens are certain proposals, so that at a temperature above 0 one is
accepted with the target's probability of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.cost_models.acceptance.evidence.copies import Copies
from specplan.ir.plan import Plan
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.templates.plan_text import draft_and_verify

LENGTHS = tuple(range(2, 17))
SHORTEST = (1, 2, 3, 4, 5)
"""Shortest matches that are compared: short ones are often wrong, long ones are rare."""


@dataclass(frozen=True)
class PromptLookupOptions(Options):
    """What is looked up; the longest suffix is tried first."""

    reads = "up to {length} tokens after a match of {shortest_match} to {longest_match}"

    shortest_match: Annotated[int, Option("shortest suffix looked for, tokens")]
    longest_match: Annotated[int, Option("longest suffix looked for, tokens")]
    length: Annotated[int, Option("tokens proposed at most")]


class PromptLookup(Method[PromptLookupOptions]):
    """Costs no draft model; pays where outputs repeat their prompt or themselves."""

    summary = "drafts copied from the request's own text after a matching suffix"
    paper = (
        "Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding; references in the prompt: "
        "Yang et al. 2023, arXiv 2304.04487"
    )
    differs = (
        "LLMA's references stand in the prompt: a request has no other text to copy from here."
    )
    acceptance = "length of the copy that the text goes on with"
    engine_drafter = "text"
    sources = ("prompt_lookup",)
    source_drafter = TEXT

    def choices(self, facts: ProblemFacts) -> Sequence[Family[PromptLookupOptions] | Refusal]:
        """Chains of 2 to 16 tokens, after the matches that acceptance was measured for."""
        name, reason = "chain from the text", self.missing_source(facts)
        if reason is not None:
            return [Refusal(name, reason)]
        profile = facts.profiles[TEXT]
        matches = [profile.match or LOOKUP_MATCH]
        if isinstance(profile.evidence, Copies):
            longest = profile.evidence.longest
            matches = [(shortest, longest) for shortest in SHORTEST if shortest <= longest]
        every = product(matches, LENGTHS)
        return [Family.of(name, (PromptLookupOptions(*match, length) for match, length in every))]

    def plan(self, facts: ProblemFacts, options: PromptLookupOptions) -> Plan:
        """Look up, verify, accept; a request without a match decodes one token."""
        match = f"[{options.shortest_match}, {options.longest_match}]"
        lookup = f"lookup @text %t0 at=%t0 match={match} length={options.length}"
        return draft_and_verify(facts, self, f"%t0 = root\n%c = {lookup}", options.length)


METHOD = PromptLookup()
