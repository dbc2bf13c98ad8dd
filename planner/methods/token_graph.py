"""Hypotheses of a draft model that go on with one another's tokens where they say the same.

Graph-structured speculative decoding (Gong et al. 2024, arXiv 2407.16207): hypotheses of one draft
share many runs of tokens, so that they are kept as a graph over tokens, and what stands in it
already is not drafted again. Here a draft model writes several hypotheses, all of them in the same
passes; a pool learns the runs of N tokens in them; and each hypothesis goes on with the run that
last followed its last token, in this round's hypotheses or in those of the request before: the
graph's paths, unfolded by one link each. The target verifies all of it as a tree.

Different from there: a link needs one equal token, joins ends of hypotheses only, and the pool is
kept from round to round; nothing is pruned by probability. Hypotheses are best choices at every
temperature, certain proposals, so that the target's law is kept; the published sampler only comes
near it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

SHAPES = ((1, 3, 2), (2, 3, 2), (2, 4, 3), (3, 4, 3))
"""Hypotheses, tokens that are drafted of each, and tokens that a link adds."""
CAPACITY = 4096


@dataclass(frozen=True)
class GraphOptions(Options):
    """What is drafted, and how far it goes on.

    Attributes:
        draft: name of the draft model.
        hypotheses: chains that it drafts.
        length: tokens of each.
        link: tokens that a chain goes on with.
    """

    draft: str
    hypotheses: int
    length: int
    link: int

    @property
    def nodes(self) -> int:
        """Verified tokens."""
        return self.hypotheses * (self.length + self.link)

    @property
    def words(self) -> str:
        """`2 chains of 4 by draft, each linked to 3`."""
        return (
            f"{self.hypotheses} chains of {self.length} by {self.draft}, each linked to {self.link}"
        )


class TokenGraph(ProfiledByRunning[GraphOptions]):
    """Lengthens what a draft model drafts at no pass of its own."""

    name: ClassVar[str] = "token_graph"
    shape: ClassVar[str] = "static tree"
    summary: ClassVar[str] = "hypotheses of a draft model that go on with one another's tokens"
    paper: ClassVar[str] = "Gong et al. 2024, arXiv 2407.16207"
    memory: ClassVar[str] = "4,096 runs of each request, 590 bytes each"
    sources: ClassVar[tuple[str, ...]] = ("token_graph",)
    needs_draft_model: ClassVar[bool] = True
    family: ClassVar[str] = "linked hypotheses"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "hypotheses": "chains that are drafted",
        "length": "drafted tokens of each",
        "link": "tokens that each goes on with",
    }

    def settings(self, models: Sequence[str]) -> Iterator[GraphOptions]:
        """A few shapes for every draft model."""
        return (GraphOptions(draft, *shape) for draft, shape in product(models, SHAPES))

    def plan(self, facts: ProblemFacts, options: GraphOptions) -> Plan:
        """Draft all chains side by side, learn them, link their ends, verify, accept."""
        draft, cache = options.draft, cache_of(options.draft)
        judged = judge("%c", options.nodes, rule=None if facts.greedy else "recursive")
        body = f"""%t0 = root
%q0 = forward {draft} %t0 cache={cache} pending={options.link + 2}
%t1 = grow %t0 at=%t0 logits=%q0 children={options.hypotheses}
%d = repeat {options.length - 1} (%t = %t1) {{
  %f = pick %t of=newest
  %q = forward {draft} %f cache={cache}
  %n = grow %t at=%f logits=%q
  yield %n
}}
update @graph %d last={options.length + 1}
%ends = pick %d of=leaves
%c = lookup @graph %d at=%ends match=[1, 1] length={options.link}
{judged}
commit {cache} %e"""
        graph = f"@graph = source phrases(order={options.link + 1}, width=4, capacity={CAPACITY})"
        return single_round_plan(facts, self.name, (draft,), body, states=[graph])


METHOD = TokenGraph()
