"""Drafts from a trie of prompts and outputs: the commonest branches below what matches, as a tree.

Lookahead (Zhao et al. 2023, arXiv 2312.12728; the system of Ant Group, not lookahead decoding by
Jacobi iteration): runs of tokens are inserted as branches with their counts, those of a prompt are
eliminated when its request ends, rare ones are pruned when the trie is full. The published boost of
a prompt's own branches is left out. Drafts are certain proposals, judged by the recursive rule at a
temperature above 0; what one request draws then depends on what others have written before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, Model, Source
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Refusal
from specplan.planner.templates.source_drafts import MergedOptions, merged_plan, merged_trees

TRIE = DRAFT_SOURCES["trie"]


class TrieLookahead(Method[MergedOptions]):
    """Costs no draft model; pays where many requests are answered alike."""

    name: ClassVar[str] = "trie_lookahead"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = "the commonest branches of a trie of prompts and past outputs"
    paper: ClassVar[str] = "Zhao et al. 2023, arXiv 2312.12728"
    acceptance: ClassVar[str] = "places of the text in the merged trees, prompts in their order"
    memory: ClassVar[str] = "262,144 nodes of all requests, 420 bytes each"
    sources: ClassVar[tuple[str, ...]] = ("trie",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (Source(TRIE.word),)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[MergedOptions] | Refusal]:
        """Trees by nodes and depth."""
        return [merged_trees(facts, self, TRIE, "tree from the trie")]

    def plan(self, facts: ProblemFacts, options: MergedOptions) -> Plan:
        """Insert, look up, verify, accept."""
        return merged_plan(facts, self.name, TRIE, options)

    def drafter(self, facts: ProblemFacts, options: MergedOptions) -> Drafter | None:
        """The trie."""
        return Source(TRIE.word)


METHOD = TrieLookahead()
