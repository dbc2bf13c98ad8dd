"""A chain, and beside each of its tokens more candidates the less sure the draft model is there.

The proposal expansion of GliDe with a CaPE (Du et al. 2024, arXiv 2402.02082): the draft model
writes a chain of its best tokens, a pass each; at every place its next ranks are candidates too, at
no pass of their own, more of them where its confidence is low. There a table of four bands of
confidence says how many. Here all candidates of a round compete for a number of verified tokens by
the probability of their paths, so that a place gets the more of them the surer the draft model is
of what comes before it and the less sure it is there. GliDe itself, a drafter that reads the
target's cache, is a matter of the checkpoint. Children are best ranks at every temperature, certain
proposals, judged above 0 by the recursive rule.
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

SHAPES = ((2, 3, 4), (3, 4, 6), (4, 4, 8), (5, 7, 12), (7, 7, 16))
"""Tokens of the chain, candidates at each of its places, and verified tokens."""


@dataclass(frozen=True)
class CapeOptions(Options):
    """Which model drafts, and how much.

    Attributes:
        draft: name of the draft model.
        length: tokens of the chain.
        width: candidates at each of its places, the chain's own token among them.
        nodes: verified tokens, the likeliest ones.
    """

    draft: str
    length: int
    width: int
    nodes: int

    @property
    def words(self) -> str:
        """`chain of 3 by draft, 4 candidates at each place, the best 6`."""
        return (
            f"chain of {self.length} by {self.draft}, {self.width} candidates at each place, "
            f"the best {self.nodes}"
        )


class Cape(ProfiledByRunning[CapeOptions]):
    """Second chances where they count, for passes over one token each."""

    name: ClassVar[str] = "cape"
    shape: ClassVar[str] = "dynamic tree"
    summary: ClassVar[str] = "a chain, with more candidates where the draft model is less sure"
    paper: ClassVar[str] = "Du et al. 2024, arXiv 2402.02082"
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "chain with candidates"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "length": "tokens of the chain",
        "width": "candidates at each of its places",
        "nodes": "verified tokens, the likeliest ones",
    }

    def settings(self, models: Sequence[str]) -> Iterator[CapeOptions]:
        """A few shapes for every draft model."""
        return (CapeOptions(draft, *shape) for draft, shape in product(models, SHAPES))

    def plan(self, facts: ProblemFacts, options: CapeOptions) -> Plan:
        """Draft, rank at every place, keep the likeliest, verify, accept."""
        draft, cache, width = options.draft, cache_of(options.draft), options.width
        body = f"""%t0 = root
%q0 = forward {draft} %t0 cache={cache} pending=2
%t1 = grow %t0 at=%t0 logits=%q0 children={width}
%pool = repeat {options.length - 1} (%t = %t1) {{
    %f = pick %t of=newest nodes=[0]
    %q = forward {draft} %f cache={cache}
    %n = grow %t at=%f logits=%q children={width}
    yield %n
}}
%best = pick %pool of=all best={options.nodes}
%c = prune %pool to=%best
{judge("%c", options.nodes, rule=None if facts.greedy else "recursive")}
commit {cache} %e"""
        return single_round_plan(facts, self.name, (draft,), body)


METHOD = Cape()
