"""Drafts copied from past outputs, of this request and of others, after a matching suffix.

Suffix decoding (Oliaro et al. 2024, arXiv 2411.04975): past outputs are kept as a suffix tree; what
followed the longest match of the text's end is proposed, as a chain, or as several continuations
side by side. The drafts are certain proposals, so that at a temperature above 0 one is accepted
with the target's probability of it; the draws of one request then depend on what others have
written before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Source
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Option, Options, Refusal
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.source_drafts import SourceMethod, source_plan

LENGTHS = (2, 3, 4, 6, 8, 12, 16, 24)
BRANCHED_LENGTHS = (2, 4, 8)
CONTINUATIONS = (2, 3, 4)


@dataclass(frozen=True)
class SuffixOptions(Options):
    """What is copied."""

    continuations: Annotated[int, Option("places copied from, the likeliest ones")]
    length: Annotated[int, Option("tokens copied from each at most")]

    @property
    def words(self) -> str:
        """`up to 8 tokens of past outputs`, `3 continuations of 4 tokens of past outputs`."""
        one = self.continuations == 1
        many = "up to" if one else f"{self.continuations} continuations of"
        return f"{many} {self.length} tokens of past outputs"


class Suffix(SourceMethod[SuffixOptions]):
    """Costs no draft model; pays where outputs repeat what was written before.

    The longest match of its source is vLLM's suffix_decoding_max_tree_depth, the tokens that it
    keeps are its suffix_decoding_corpus_tokens.
    """

    summary = "drafts copied from outputs of the past after a matching suffix"
    paper = "Oliaro et al. 2024, arXiv 2411.04975"
    differs = (
        "Lengths are fixed, where the paper's follow the match; engines propose at most these."
    )
    acceptance = (
        "length of the copy that the text goes on with, prompts in their order; trees: given"
    )
    memory = "1,000,000 tokens of all requests, 12 bytes each"
    engine_drafter = "past"
    source = DRAFT_SOURCES["suffix"]

    def choices(self, facts: ProblemFacts) -> Sequence[Family[SuffixOptions] | Refusal]:
        """Chains of 2 to 24 tokens; up to four continuations where their acceptance is known."""
        chains, trees = "chain from past outputs", "continuations from past outputs"
        reason = self.missing_source(facts)
        if reason is not None:
            return [Refusal(chains, reason), Refusal(trees, reason)]
        family = Family.of(chains, (SuffixOptions(1, length) for length in LENGTHS))
        profile = facts.profiles[Source(self.source.word)]
        if not profile.evidence.ranked or not profile.hazard(1, 1):
            reason = "its acceptance profile tells of one continuation only"
            return [family, Refusal(trees, Reason(reason, Cause.FIRST_CHOICES))]
        branched = (SuffixOptions(*one) for one in product(CONTINUATIONS, BRANCHED_LENGTHS))
        return [family, Family.of(trees, branched)]

    def plan(self, facts: ProblemFacts, options: SuffixOptions) -> Plan:
        """Remember, look up, verify, accept; a request without a match decodes one token."""
        several = f"children={options.continuations} " if options.continuations > 1 else ""
        nodes = options.continuations * options.length
        return source_plan(facts, self, f"{several}length={options.length}", nodes, state="past")


METHOD = Suffix()
