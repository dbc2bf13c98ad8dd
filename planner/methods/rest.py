"""Drafts from a corpus: what followed the longest match, as a tree of the commonest tokens.

REST (He et al. 2023, arXiv 2311.08252). The corpus is sorted once, by `specplan datastore build`,
and memory mapped; compacted as in CREST (Ho et al. 2024, arXiv 2408.04678) it keeps common runs of
tokens only. Drafts are certain proposals, judged by the recursive rule at a temperature above 0:
the published sampler draws anew after a mismatch, which is biased.
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

CORPUS = DRAFT_SOURCES["datastore"]


class Rest(Method[MergedOptions]):
    """Costs no draft model; pays where outputs resemble the corpus."""

    name: ClassVar[str] = "rest"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = "the commonest continuations of the text's end in a corpus"
    paper: ClassVar[str] = (
        "He et al. 2023, arXiv 2311.08252; compaction: Ho et al. 2024, arXiv 2408.04678"
    )
    acceptance: ClassVar[str] = "places of the text in the merged trees"
    memory: ClassVar[str] = "the corpus on disk, 14 to 16 bytes a token, mapped; 1 MB of its own"
    sources: ClassVar[tuple[str, ...]] = ("datastore",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (Source(CORPUS.word),)

    def choices(self, facts: ProblemFacts) -> Sequence[Family[MergedOptions] | Refusal]:
        """Trees by nodes and depth."""
        return [merged_trees(facts, self, CORPUS, "tree from the corpus")]

    def plan(self, facts: ProblemFacts, options: MergedOptions) -> Plan:
        """Look up, verify, accept."""
        return merged_plan(facts, self.name, CORPUS, options, facts.problem.datastore)

    def drafter(self, facts: ProblemFacts, options: MergedOptions) -> Drafter | None:
        """The corpus."""
        return Source(CORPUS.word)


METHOD = Rest()
