"""A small model orders what heads for several tokens ahead draft together, and the best is judged.

Heads on one state know nothing of the tokens between, so that the likeliest token of each need not
make a text. Refined drafts of blockwise decoding (Kim et al. 2024, arXiv 2404.09221): the best
tokens of all heads are a lattice, which a language model rescores before the target verifies the
best path, or some. Here a draft model of the problem runs the whole lattice in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import NO_HEADS_AHEAD, heads_ahead, models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.head_drafts import lattice_text
from specplan.planner.templates.plan_text import (
    cache_of,
    draft_and_verify,
    features_of,
    uncached_of,
)
from specplan.planner.templates.profiled_by_running import ProfiledByRunning


@dataclass(frozen=True)
class RescoredOptions(Options):
    """Who drafts, who orders the drafts, and how many are judged."""

    reads = "best {paths} of {width} tokens at {depth} levels by {draft}, ordered by {scorer}"

    draft: DraftName
    scorer: DraftName
    width: Annotated[int, Option("tokens of each head")]
    depth: Annotated[int, Option("heads")]
    paths: Annotated[int, Option("paths that the target verifies")]


class RescoredHeads(ProfiledByRunning[RescoredOptions]):
    """One pass of a small model for paths that read as text."""

    summary = "heads for several tokens ahead draft a lattice, a draft model picks its best paths"
    paper = "Kim et al. 2024, arXiv 2404.09221"
    differs = (
        "The probabilities of a draft model as it is order the paths, where the paper interpolates "
        "those of a small model, or of n-grams, with the heads' by weights that it fits."
    )
    shape = "dynamic tree"
    family = "rescored lattices"
    shapes = ((2, 2, 1), (3, 2, 1), (2, 3, 1), (3, 3, 1), (2, 3, 2), (3, 3, 3))

    def run_settings(self, facts: ProblemFacts) -> Iterator[RescoredOptions]:
        """Of every set of heads with every draft model."""
        for draft, most in heads_ahead(facts.drafters).items():
            for scorer in models_alone(facts.shapes):
                for width, depth, paths in self.shapes:
                    if depth <= most:
                        yield RescoredOptions(draft, scorer, width, depth, paths)

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """There have to be both."""
        return None if heads_ahead(facts.drafters) else NO_HEADS_AHEAD

    def plan(self, facts: ProblemFacts, options: RescoredOptions) -> Plan:
        """The heads' lattice, its probabilities by the draft model, and the best paths of it."""
        draft, scorer = options.draft, options.scorer
        drafted = f"""{lattice_text(facts, draft, options.width, options.depth)}
%q = forward {scorer} %w cache={cache_of(scorer)} pending=1
%s = score %w logits=%q
%b = pick %s of=leaves best={options.paths}
%c = prune %s to=%b"""
        return draft_and_verify(
            facts, self, drafted, options.paths * options.depth, models=(draft, scorer),
            features=features_of(facts.drafters[draft]), uncached=uncached_of(facts, (draft,)),
        )  # fmt: skip


METHOD = RescoredHeads()
