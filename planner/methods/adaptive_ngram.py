"""Drafts grown token by token from the n-grams of the request's own text, counted as it grows.

ANPD (Ou et al. 2024, arXiv 2404.08698): after the longest known run of tokens the commonest
successor is proposed, then the commonest after that, and so on. Prompt lookup copies one
occurrence; here a draft may join several. Drafts are certain proposals: at a temperature above 0
one is accepted with the target's probability of it.
"""

from __future__ import annotations

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.planner.templates.source_drafts import SourceChains


class AdaptiveNgram(SourceChains):
    """Costs no draft model; pays where outputs follow patterns of their own text."""

    summary = "drafts grown from counted n-grams of the request's own text"
    paper = "Ou et al. 2024, arXiv 2404.08698"
    acceptance = "length of the draft that the text goes on with"
    memory = "65,536 runs of tokens of each request, 900 bytes each"
    source = DRAFT_SOURCES["ngram"]
    family = "chain from n-grams"
    lengths = (2, 3, 4, 5, 6, 8, 10, 12, 16)


METHOD = AdaptiveNgram()
