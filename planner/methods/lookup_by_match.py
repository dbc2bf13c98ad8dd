"""Copies of the text that are long after a long match, and short after a short one.

The longer the match, the likelier it is that the text goes on as it did before (SuffixDecoding,
Oliaro et al. 2024, arXiv 2411.04975, copies in proportion to it). A short match is worth a small
round, and a long one fills a large round: there are compiled forms for either, and for none. Above
temperature 0 a small round would draw other numbers than the large one, which runs in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.cost_models.acceptance.evidence.copies import Copies
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.source_drafts import copies_by_match

SHORTEST = (1, 2, 3)
SURE = (5, 7)
BRIEF = (2, 4)
COPIED = (8, 12, 16, 24)


@dataclass(frozen=True)
class LookupByMatchOptions(Options):
    """How far is copied after which match."""

    reads = (
        "copies of up to {copied} tokens after a match of {sure} to {longest_match}, of {brief} "
        "after one of {shortest_match}"
    )

    shortest_match: Annotated[int, Option("shortest suffix looked for, tokens")]
    sure: Annotated[int, Option("shortest suffix that a long copy follows, tokens")]
    longest_match: Annotated[int, Option("longest suffix looked for, tokens")]
    brief: Annotated[int, Option("tokens copied after a shorter match at most")]
    copied: Annotated[int, Option("tokens copied after a longer match at most")]


class LookupByMatch(Method[LookupByMatchOptions]):
    """Costs no draft model; pays where a verified token costs much, and some matches are long."""

    summary = (
        "drafts copied from the text, long ones after a long match and short ones after a short"
    )
    paper = "Oliaro et al. 2024, arXiv 2411.04975"
    differs = "There are two lengths, where the paper's grow with every token of the match."
    acceptance = "length of the copy that the text goes on with, and of the match before it"
    sources = ("prompt_lookup",)
    source_drafter = TEXT

    def choices(self, facts: ProblemFacts) -> Sequence[Family[LookupByMatchOptions] | Refusal]:
        """Two lengths of copies, and of the matches that they follow, as far as was measured."""
        name, reason = "copies by match", self.missing_source(facts)
        if reason is not None:
            return [Refusal(name, reason)]
        evidence = facts.profiles[TEXT].evidence
        if not isinstance(evidence, Copies):
            return [Refusal(name, "the acceptance of the text was not measured by match")]
        every = product(SHORTEST, SURE, BRIEF, COPIED)
        copies = (
            LookupByMatchOptions(shortest, sure, evidence.longest, brief, copied)
            for shortest, sure, brief, copied in every
            if sure <= evidence.longest and copied <= evidence.copied
        )
        return [Family.of(name, copies)]

    def plan(self, facts: ProblemFacts, options: LookupByMatchOptions) -> Plan:
        """Look up twice; verify the longer copy, else the shorter one, else decode one token."""
        matches = options.shortest_match, options.sure, options.longest_match
        copies = copies_by_match(matches, options.brief, options.copied)
        return draft_and_verify(facts, self, f"%t0 = root\n{copies}", options.copied)


METHOD = LookupByMatch()
