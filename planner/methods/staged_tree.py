"""Runs of an n-gram model of the draft's own samples draft for the draft model, which grows a tree.

Staged speculative decoding (Spector and Re 2023, arXiv 2308.04623), both halves of it: an n-gram
model, fitted on what was drafted before, speculates for the draft model, so that one pass of it
gives several tokens; and the draft is a tree, as every node of that chain gets the draft model's
best children. Of these the most probable are verified. Drafts are ranked or given, certain
proposals, and keep the target's distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.plan_text import cache_of, draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

ORDER = 4


@dataclass(frozen=True)
class StagedTreeOptions(Options):
    """Which model drafts, in how many passes, and how much is verified."""

    reads = "the best {nodes} of {stages} stages of {length}, {children} children, by {draft}"

    draft: DraftName
    stages: Annotated[int, Option("passes of the draft model over what n-grams propose")]
    length: Annotated[int, Option("tokens that n-grams propose to each of them")]
    children: Annotated[int, Option("children of each node of that chain")]
    nodes: Annotated[int, Option("verified nodes, the most probable ones")]


class StagedTree(ProfiledByRunning[StagedTreeOptions]):
    """A tree for a few passes of the draft model, where its drafts repeat themselves."""

    summary = "n-grams of earlier drafts speculate for a draft model, which grows a tree"
    paper = "Spector and Re 2023, arXiv 2308.04623"
    differs = "N-grams come from drafts that were verified, in the service, and not from a corpus."
    shares = True
    memory = "65,536 runs of tokens of all requests"
    shape = "dynamic tree"
    family = "staged trees"
    shapes = ((1, 2, 2, 6), (1, 3, 3, 8), (2, 3, 3, 12), (3, 3, 3, 16))

    def plan(self, facts: ProblemFacts, options: StagedTreeOptions) -> Plan:
        """The draft model judges runs, then widens the chain; the best of it is verified."""
        cache = f"cache={cache_of(options.draft)}"
        first = "" if facts.greedy else "rule=relaxed(top=1, delta=0.0)"
        drafted = f"""%t0 = root
%chain = repeat {options.stages} (%t = %t0) {{
    %tip = pick %t of=leaves
    %g = lookup @grams %t at=%tip match=[1, 1] length={options.length}
    %n = pick %g of=from at=%tip
    %q = forward {options.draft} %n {cache}
    %i = accept %g target=%q at=%tip {first}
    %m = adopt %g %i
    yield %m
}}
%q2 = forward {options.draft} %chain {cache}
%w = grow %chain at=%chain logits=%q2 children={options.children}
%d = graft %w same=merge
%s = score %d logits=%q2
%b = pick %s of=all best={options.nodes}
%c = prune %s to=%b"""
        grams = f"@grams = source phrases(order={ORDER}, width=4, capacity=65536) scope=process"
        return draft_and_verify(
            facts, self, drafted, options.nodes, models=(options.draft,), states=(grams,),
            after=f"update @grams %c last={ORDER}",
        )  # fmt: skip


METHOD = StagedTree()
