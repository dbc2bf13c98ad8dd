"""Drafts grown token by token from the n-grams of the request's own text, counted as it grows.

ANPD (Ou et al. 2024, arXiv 2404.08698): after the longest known run of tokens the commonest
successor is proposed, then the commonest after that, and so on: other than prompt lookup, which
copies one occurrence, a draft may join what stands in several places. Drafts are certain proposals:
at a temperature above 0 one is accepted with the target's probability of it.
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

LENGTHS = (2, 3, 4, 5, 6, 8, 10, 12, 16)
NGRAMS = DRAFT_SOURCES["ngram"]


class AdaptiveNgram(Method[ChainOptions]):
    """Costs no draft model; pays where outputs follow patterns of their own text."""

    name: ClassVar[str] = "adaptive_ngram"
    summary: ClassVar[str] = "drafts grown from counted n-grams of the request's own text"
    paper: ClassVar[str] = "Ou et al. 2024, arXiv 2404.08698"
    acceptance: ClassVar[str] = "length of the draft that the text goes on with"
    memory: ClassVar[str] = "65,536 runs of tokens of each request, 900 bytes each"
    sources: ClassVar[tuple[str, ...]] = ("ngram",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (Source(NGRAMS.word),)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[ChainOptions] | Refusal]:
        """Chains of 2 to 16 tokens."""
        return [chains(facts, self, NGRAMS, "chain from n-grams", LENGTHS)]

    def plan(self, facts: ProblemFacts, options: ChainOptions) -> Plan:
        """Count, grow a chain, verify, accept."""
        wanted = f"length={options.length}"
        return source_plan(facts, self.name, NGRAMS, wanted, options.length)

    def drafter(self, facts: ProblemFacts, options: ChainOptions) -> Drafter | None:
        """The n-grams."""
        return Source(NGRAMS.word)


METHOD = AdaptiveNgram()
