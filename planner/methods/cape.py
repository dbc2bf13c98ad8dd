"""A chain, and at each of its places more candidates the less sure the draft model is there.

The proposal expansion of GliDe with a CaPE (Du et al. 2024, arXiv 2402.02082): the draft model
writes a chain of its best tokens, a pass each; at every place its next ranks are candidates too, at
no pass of their own, more of them where its confidence is low. There a table of four bands of
confidence gives their number. Here all candidates of a round compete for a number of verified
tokens by the probability of their paths, so that a place gets the more of them the surer the draft
model is of the tokens before it and the less sure it is there. Children are best ranks at every
temperature, certain proposals, judged above 0 by the recursive rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning
from specplan.planner.templates.static_trees import layers_text


@dataclass(frozen=True)
class CapeOptions(Options):
    """Which model drafts, and how much."""

    reads = "chain of {length} by {draft}, {width} candidates at each place, the best {nodes}"

    draft: DraftName
    length: Annotated[int, Option("tokens of the chain")]
    width: Annotated[int, Option("candidates at each of its places")]
    nodes: Annotated[int, Option("verified tokens, the likeliest ones")]


class Cape(ProfiledByRunning[CapeOptions]):
    """Second chances where they count, for passes over one token each."""

    summary = "a chain, with more candidates where the draft model is less sure"
    paper = "Du et al. 2024, arXiv 2402.02082"
    differs = (
        "GliDe, a drafter that reads the target's cache, is left out; candidates compete for a "
        "number of nodes where the paper has a table of confidence bands."
    )
    shape = "dynamic tree"
    family = "chain with candidates"
    shapes = ((2, 3, 4), (3, 4, 6), (4, 4, 8), (5, 7, 12), (7, 7, 16))

    def plan(self, facts: ProblemFacts, options: CapeOptions) -> Plan:
        """Draft, rank at every place, prune to the likeliest, verify, accept."""
        passes, width = draft_passes(options.draft), options.width
        pool = layers_text(
            options.length, passes, first=width, later=width, pick="nodes=[0]", result="%pool"
        )
        drafted = f"""{pool}
%best = pick %pool of=all best={options.nodes}
%c = prune %pool to=%best"""
        return draft_and_verify(facts, self, drafted, options.nodes, models=(options.draft,))


METHOD = Cape()
