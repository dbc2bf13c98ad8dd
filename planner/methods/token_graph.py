"""Hypotheses of a draft model that continue with one another's tokens where they agree.

Graph-structured speculative decoding (Gong et al. 2024, arXiv 2407.16207): hypotheses of one draft
share many runs of tokens, so that they are kept as a graph over tokens, and what is in the graph
already is not drafted again. Here a draft model writes several hypotheses, all of them in the same
passes; a pool learns the runs of N tokens in them; and each hypothesis continues with the run that
last followed its last token, in this round's hypotheses or in those of the request before: the
graph's paths, unfolded by one link each. The target verifies all of it as a tree.

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

    reads = "{hypotheses} chains of {length} by {draft}, each linked to {link}"

    draft: DraftName
    hypotheses: Annotated[int, Option("chains that are drafted")]
    length: Annotated[int, Option("drafted tokens of each")]
    link: Annotated[int, Option("tokens that each goes on with")]

    @property
    def nodes(self) -> int:
        """Verified tokens."""
        return self.hypotheses * (self.length + self.link)


class TokenGraph(ProfiledByRunning[GraphOptions]):
    """Lengthens the draft of a draft model at no pass of its own."""

    summary = "hypotheses of a draft model that go on with one another's tokens"
    paper = "Gong et al. 2024, arXiv 2407.16207"
    differs = (
        "A link needs one equal token and joins ends of hypotheses only, the pool is kept from "
        "round to round, and nothing is pruned by probability."
    )
    memory = "4,096 runs of each request, 590 bytes each"
    shape = "static tree"
    sources = ("token_graph",)
    by_name = False
    family = "linked hypotheses"
    shapes = ((1, 3, 2), (2, 3, 2), (2, 4, 3), (3, 4, 3))

    def plan(self, facts: ProblemFacts, options: GraphOptions) -> Plan:
        """Draft all chains side by side, learn them, link their ends, verify, accept."""
        passes = draft_passes(options.draft, options.link + 2)
        drafted = f"""{layers_text(options.length, passes, first=options.hypotheses, result="%d")}
update @graph %d last={options.length + 1}
%ends = pick %d of=leaves
%c = lookup @graph %d at=%ends match=[1, 1] length={options.link}"""
        graph = f"@graph = source phrases(order={options.link + 1}, width=4, capacity={CAPACITY})"
        models = (options.draft,)
        return draft_and_verify(facts, self, drafted, options.nodes, models=models, states=(graph,))


METHOD = TokenGraph()
