"""Drafts from a corpus: what followed the longest match, as a tree of the commonest tokens.

REST (He et al. 2023, arXiv 2311.08252). The corpus is sorted once, by `specplan datastore build`,
and memory mapped; compacted as in CREST (Ho et al. 2024, arXiv 2408.04678) it keeps common runs of
tokens only. Drafts are certain proposals, judged by the recursive rule at a temperature above 0:
the published sampler draws anew after a mismatch, which is biased.
"""

from __future__ import annotations

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.planner.templates.source_drafts import SourceTrees


class Rest(SourceTrees):
    """Costs no draft model; pays where outputs resemble the corpus."""

    summary = "the commonest continuations of the text's end in a corpus"
    paper = "He et al. 2023, arXiv 2311.08252; compaction: Ho et al. 2024, arXiv 2408.04678"
    differs = (
        "At most 16 occurrences are merged, which loses 3 to 6 % of the tokens per step on code "
        "(`benchmarks/datastore_occurrences.py`); compaction thins the sorted order; CREST's "
        "ready trees are those of `crest`."
    )
    acceptance = "places of the text in the merged trees"
    memory = "the corpus on disk, 14 to 16 bytes a token, mapped; 1 MB of its own"
    shape = "dynamic tree"
    source = DRAFT_SOURCES["datastore"]
    family = "tree from the corpus"


METHOD = Rest()
