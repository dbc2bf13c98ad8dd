"""A chain, and at each of its places more candidates the less sure the draft model is there.

The proposal expansion of GliDe with a CaPE (Du et al. 2024, arXiv 2402.02082): the draft model
writes a chain of its best tokens, a pass each; at every place its next ranks are candidates too, at
no pass of their own. A table of confidence, the probability of the best token, gives their number:
seven candidates up to 0.3, five up to 0.6, three up to 0.8, and the chain's token alone above. Only
so many nodes as a setting has are verified, the likeliest, because the sizes of a plan are bounded:
a node of the chain weighs more, once for each place behind it. Children are best ranks at every
temperature, certain proposals, judged above 0 by the recursive rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BANDS = ((0.3, 7), (0.6, 5), (0.8, 3))
"""Confidence up to which a place has so many candidates, its chain's token among them."""
WIDEST = BANDS[0][1]


@dataclass(frozen=True)
class CapeOptions(Options):
    """Which model drafts, and how much."""

    reads = "chain of {length} by {draft} with candidates by confidence, at most {nodes}"

    draft: DraftName
    length: Annotated[int, Option("tokens of the chain")]
    nodes: Annotated[int, Option("verified tokens at most, the likeliest candidates")]


class Cape(ProfiledByRunning[CapeOptions]):
    """Second chances where they count, for passes over one token each."""

    summary = "a chain, with more candidates where the draft model is less sure"
    paper = "Du et al. 2024, arXiv 2402.02082"
    differs = (
        "GliDe, a drafter that reads the target's cache, is left out; a round verifies a number of "
        "nodes at most."
    )
    shape = "dynamic tree"
    family = "chain with candidates"
    shapes = ((2, 8), (3, 12), (4, 16), (5, 20), (7, 28))

    def plan(self, facts: ProblemFacts, options: CapeOptions) -> Plan:
        """Draft a chain, add candidates at every place, join, verify, accept."""
        drafted = "\n".join(_drafted(options))
        return draft_and_verify(facts, self, drafted, options.nodes, models=(options.draft,))


def _drafted(options: CapeOptions) -> Iterator[str]:
    """Text of the tree `%c`: place i hangs below the chain `%t<i>`, and `%p<i>` ends in it."""
    passes, places = draft_passes(options.draft), range(options.length)
    count = "1"
    for bar, candidates in reversed(BANDS):
        count = f"where(m <= {bar}, {candidates}, {count})"
    yield "%t0 = root"
    for i in places:
        nodes = f"%f{i}" if i else "%t0"
        if i:
            yield f"{nodes} = pick %t{i} of=newest"
        yield f"""%q{i} = {passes[min(i, 1)].over(nodes)}
%m{i} = measure %q{i} top1
%k{i} = compute "{count}" m=%m{i}
%g{i} = grow %t{i} at={nodes} logits=%q{i} children={WIDEST}
%b{i} = pick %g{i} of=newest count=%k{i}
%p{i} = prune %g{i} to=%b{i}"""
        if i + 1 < options.length:
            yield f"%t{i + 1} = grow %t{i} at={nodes} logits=%q{i}"
    joined = " ".join(f"%p{i}" for i in places)
    yield f"""%pool = graft {joined} same=merge
%best = pick %pool of=all best={options.nodes}
%c = prune %pool to=%best"""


METHOD = Cape()
