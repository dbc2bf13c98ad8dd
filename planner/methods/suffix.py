"""Drafts copied from outputs of the past, of this request and of others, after a matching suffix.

Suffix decoding (Oliaro et al. 2024, arXiv 2411.04975): past outputs are kept as a suffix tree; what
followed the longest match of the text's end is proposed, as a chain, or as several continuations
side by side. Lengths are given: engines that adapt them to the match propose at most as much. The
drafts are certain proposals, so that at a temperature above 0 one is accepted with the target's
probability of it; what one request draws then depends on what others have written before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, Model, Source
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import judge, single_round_plan

LENGTHS = (2, 3, 4, 6, 8, 12, 16, 24)
BRANCHED_LENGTHS = (2, 4, 8)
CONTINUATIONS = (2, 3, 4)
PAST = DRAFT_SOURCES["suffix"]
"""Its longest match is vLLM's suffix_decoding_max_tree_depth, the tokens kept are its
suffix_decoding_corpus_tokens."""


@dataclass(frozen=True)
class SuffixOptions(Options):
    """What is copied.

    Attributes:
        continuations: places in past outputs that are copied from, the likeliest ones.
        length: tokens copied from each at most.
    """

    continuations: int
    length: int

    @property
    def words(self) -> str:
        """`up to 8 tokens of past outputs`, `3 continuations of 4 tokens of past outputs`."""
        if self.continuations == 1:
            return f"up to {self.length} tokens of past outputs"
        return f"{self.continuations} continuations of {self.length} tokens of past outputs"


class Suffix(Method[SuffixOptions]):
    """Costs no draft model; pays where outputs repeat what was written before."""

    name: ClassVar[str] = "suffix"
    engine_drafter: ClassVar[str] = "past"
    summary: ClassVar[str] = "drafts copied from outputs of the past after a matching suffix"
    paper: ClassVar[str] = "Oliaro et al. 2024, arXiv 2411.04975"
    acceptance: ClassVar[str] = (
        "length of the copy that the text goes on with, prompts in their order; trees: given"
    )
    memory: ClassVar[str] = "1,000,000 tokens of all requests, 12 bytes each"
    sources: ClassVar[tuple[str, ...]] = ("suffix",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (Source(PAST.word),)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[SuffixOptions] | Refusal]:
        """Chains of 2 to 24 tokens, and up to four continuations where their acceptance is told."""
        chains, trees = "chain from past outputs", "continuations from past outputs"
        reason = None
        if not set(self.sources) <= set(facts.problem.sources):
            reason = f'the problem\'s sources leave out "{self.sources[0]}"'
        elif Source(PAST.word) not in facts.profiles:
            reason = facts.missing_profile(Source(PAST.word))
        if reason is not None:
            return [Refusal(chains, reason), Refusal(trees, reason)]
        found: list[Family[SuffixOptions] | Refusal] = [_family(chains, (1,), LENGTHS)]
        profile = facts.profiles[Source(PAST.word)]
        if not profile.evidence.ranked or not profile.hazard(1, 1):
            told = "its acceptance profile tells of one continuation only"
            return [*found, Refusal(trees, told)]
        return [*found, _family(trees, CONTINUATIONS, BRANCHED_LENGTHS)]

    def plan(self, facts: ProblemFacts, options: SuffixOptions) -> Plan:
        """Remember, look up, verify, accept; a request without a match decodes one token."""
        rule = None if facts.greedy else "recursive"
        several = f" children={options.continuations}" if options.continuations > 1 else ""
        body = (
            "%t0 = root\n"
            f"update @past %t0 last={PAST.last}\n"
            f"%c = lookup @past %t0 at=%t0 match={list(PAST.match)}{several} "
            f"length={options.length}\n"
            + judge("%c", options.continuations * options.length, rule=rule)
        )
        states = (PAST.declaration("past"),)
        return single_round_plan(
            facts, self.name, (), body, states=states, reproducible=facts.greedy
        )

    def drafter(self, facts: ProblemFacts, options: SuffixOptions) -> Drafter | None:
        """Past outputs."""
        return Source(PAST.word)


def _family(
    name: str, continuations: Sequence[int], lengths: Sequence[int]
) -> Family[SuffixOptions]:
    domains = {
        "continuations": Domain(tuple(continuations), "places copied from"),
        "length": Domain(tuple(lengths), "tokens copied from each at most"),
    }
    settings = tuple(SuffixOptions(number, n) for number in continuations for n in lengths)
    return Family(name, domains, settings)


METHOD = Suffix()
