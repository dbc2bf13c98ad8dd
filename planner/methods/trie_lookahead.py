"""Drafts from a trie of prompts and outputs: the commonest branches below a match, as a tree.

Lookahead (Zhao et al. 2023, arXiv 2312.12728; the system of Ant Group, not lookahead decoding by
Jacobi iteration): runs of tokens are inserted as branches with their counts, those of a prompt are
eliminated when its request ends, rare ones are pruned when the trie is full. Drafts are certain
proposals, judged by the recursive rule at a temperature above 0; the draws of one request then
depend on what others have written before.
"""

from __future__ import annotations

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.planner.templates.source_drafts import SourceTrees


class TrieLookahead(SourceTrees):
    """Costs no draft model; pays where many requests are answered alike."""

    summary = "the commonest branches of a trie of prompts and past outputs"
    paper = "Zhao et al. 2023, arXiv 2312.12728"
    differs = "Branches of the request's own prompt have no boost."
    acceptance = "places of the text in the merged trees, prompts in their order"
    memory = "262,144 nodes of all requests, 420 bytes each"
    shape = "dynamic tree"
    source = DRAFT_SOURCES["trie"]
    family = "tree from the trie"


METHOD = TrieLookahead()
