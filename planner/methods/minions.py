"""Several drafters vote, and the paths that most of them agree on are verified.

Minions (Wang et al. 2024, arXiv 2402.15678): small models draft a chain each, the chains are merged
into a tree, the weight of a node is the sum of the weights of the models that drafted its path, and
the heaviest path is the draft. Here a drafter's vote for a path weighs as much as the drafter finds
it likely; the text itself (prompt lookup) votes too, for what followed its end before, and is sure
of it. The heaviest nodes up to a number are verified: the path that most agree on, and others where
they do not. Votes are for best tokens at every temperature, certain proposals, so that the target's
distribution is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.several_drafters import joined_chains, models_of


@dataclass(frozen=True)
class MinionsOptions(Options):
    """Who votes, and how much is verified."""

    reads = "{length} tokens by {drafters}, the best {nodes}"

    drafters: Annotated[tuple[str, ...], Option("who votes", drafts=True)]
    length: Annotated[int, Option("tokens that each drafts")]
    nodes: Annotated[int, Option("verified tokens, the heaviest ones")]


class Minions(ProfiledByRunning[MinionsOptions]):
    """Few verified tokens for many drafters."""

    summary = "all drafters draft, and what most of them agree on is verified"
    paper = "Wang et al. 2024, arXiv 2402.15678"
    differs = (
        "Votes weigh by probability, not by past success; lengths are fixed, drafting does not "
        "overlap with verification, and more than the heaviest path is verified."
    )
    shape = "dynamic tree"
    sources = ("prompt_lookup",)
    family = "votes of all drafters"
    shapes = ((2, 3), (3, 4), (4, 6), (6, 9))

    def settings(self, models: Sequence[str]) -> Iterator[MinionsOptions]:
        """All draft models and the text, a few sizes."""
        if models:
            yield from (MinionsOptions((*models, TEXT.name), *shape) for shape in self.shapes)

    def plan(self, facts: ProblemFacts, options: MinionsOptions) -> Plan:
        """Draft in turn, merge, prune to the heaviest, verify, accept."""
        drafters = options.drafters
        drafted = f"""{joined_chains(drafters, options.length, drawn=False, result="%pool")}
%best = pick %pool of=all best={options.nodes}
%c = prune %pool to=%best"""
        return draft_and_verify(facts, self, drafted, options.nodes, models=models_of(drafters))


METHOD = Minions()
