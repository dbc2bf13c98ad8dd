"""Drafts copied from where the longest end of the request's own text occurred before.

SAM decoding (Hu et al. 2024, arXiv 2411.10666): a suffix automaton finds the longest match, of any
length in theory and of up to 32 tokens here, in constant time however long the text is. Drafts are
certain proposals: at a temperature above 0 one is accepted with the target's probability of it.
"""

from __future__ import annotations

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.planner.templates.source_drafts import SourceChains


class SuffixAutomaton(SourceChains):
    """Costs no draft model; pays where outputs repeat long passages of their own text."""

    summary = "drafts copied after the longest match in the request's own text"
    paper = "Hu et al. 2024, arXiv 2411.10666"
    differs = (
        "A match has at most 32 tokens, and only the request's own text is searched, not a corpus "
        "as well."
    )
    acceptance = "length of the copy that the text goes on with"
    memory = "65,536 tokens of each request, 900 bytes each"
    source = DRAFT_SOURCES["automaton"]
    family = "chain from the automaton"
    lengths = (2, 3, 4, 6, 8, 12, 16, 24, 32)


METHOD = SuffixAutomaton()
