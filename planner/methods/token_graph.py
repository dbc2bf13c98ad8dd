"""Hypotheses of a draft model that continue with one another's tokens where they agree.

Graph-structured speculative decoding (Gong et al. 2024, arXiv 2407.16207): hypotheses of one draft
share many runs of tokens, so that they are kept as a graph over tokens, nodes of little probability
are cut off, and what is in the graph already is not drafted again. Here a draft model writes
several hypotheses, all of them in the same passes; nodes whose paths are less probable than a bar
leave the graph; a pool learns the runs of tokens in what is left; and each hypothesis that ends in
the tokens of another (or of an earlier round's) is linked to it: it goes on with what followed
there. The target verifies the graph's paths, unfolded by one link each, as a tree.

Hypotheses are best choices at every temperature, certain proposals, so that the target's
distribution is kept; the published sampler only comes near it.
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

CAPACITY = 4096


@dataclass(frozen=True)
class GraphOptions(Options):
    """What is drafted, and how far it goes on."""

    reads = "{hypotheses} chains of {length} by {draft}, linked by {equal} to {link} each"

    draft: DraftName
    hypotheses: Annotated[int, Option("chains that are drafted")]
    length: Annotated[int, Option("drafted tokens of each")]
    link: Annotated[int, Option("tokens that each goes on with")]
    equal: Annotated[int, Option("tokens in which linked hypotheses agree")]
    least: Annotated[float, Option("probability of a path below which it leaves the graph")] = 0.01

    @property
    def nodes(self) -> int:
        """Verified tokens."""
        return self.hypotheses * (self.length + self.link)


class TokenGraph(ProfiledByRunning[GraphOptions]):
    """Lengthens the draft of a draft model at no pass of its own."""

    summary = "hypotheses of a draft model that go on with one another's tokens"
    paper = "Gong et al. 2024, arXiv 2407.16207"
    differs = (
        "Hypotheses grow in the same passes, so that links spare none: they lengthen what is "
        "verified, at ends only, also by runs of earlier rounds."
    )
    memory = "4,096 runs of each request, 590 bytes each"
    shape = "dynamic tree"
    sources = ("token_graph",)
    by_name = False
    family = "linked hypotheses"
    shapes = ((1, 3, 2, 1), (2, 3, 2, 1), (2, 4, 3, 1), (3, 4, 3, 2))

    def plan(self, facts: ProblemFacts, options: GraphOptions) -> Plan:
        """Draft all chains side by side, cut, learn, link the ends, verify, accept."""
        passes, equal = draft_passes(options.draft, options.link + 2), options.equal
        drafted = f"""{layers_text(options.length, passes, first=options.hypotheses, result="%d")}
%likely = pick %d of=all above={options.least}
%g = prune %d to=%likely
update @graph %g last={options.length + 1}
%ends = pick %g of=leaves best={options.hypotheses}
%c = lookup @graph %g at=%ends match=[{equal}, {equal}] length={options.link}"""
        order = options.link + equal
        graph = f"@graph = source phrases(order={order}, width=4, capacity={CAPACITY})"
        models = (options.draft,)
        return draft_and_verify(facts, self, drafted, options.nodes, models=models, states=(graph,))


METHOD = TokenGraph()
