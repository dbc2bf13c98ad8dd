"""A chain as long as the last one allows: two tokens more if all were accepted, else one less.

The schedule `heuristic` of assisted generation in transformers (Gante 2023, "Assisted Generation: a
new direction toward low-latency text generation"; `AssistedCandidateGenerator` and its
`num_assistant_tokens_schedule`): after a round all of whose tokens were accepted the next one
drafts two more, after any other one fewer, but at least one. transformers began with 5 tokens, and
with 20 since it ends chains by confidence too; the length is a number of each request here, as with
its `heuristic_transient`, and `most` bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.chains import (
    WHO_DRAFTS,
    StoppedChains,
    StoppedDrafter,
    StopRule,
    chain_plan,
)


@dataclass(frozen=True)
class HeuristicLengthOptions(Options):
    """Who drafts, and how much."""

    reads = "{first} by {drafter}, then two more or one less, up to {most}"

    drafter: Annotated[StoppedDrafter, WHO_DRAFTS]
    most: Annotated[int, Option("drafted tokens at most")]
    first: Annotated[int, Option("drafted tokens of the first round")] = 5


class HeuristicLength(StoppedChains[HeuristicLengthOptions]):
    """Follows texts whose difficulty changes, by counting alone."""

    summary = "a chain that gets longer after success and shorter after failure"
    paper = "Gante 2023, doi 10.57967/hf/0638, huggingface.co/blog/assisted-generation"
    differs = "The length has an upper bound."
    memory = "one number of each request"
    family = "chains that follow success"
    shapes = ((6,), (16,))
    part_shapes = ((6,),)

    def plan(self, facts: ProblemFacts, options: HeuristicLengthOptions) -> Plan:
        """Draft the current length, verify, accept, draft more or fewer the next time."""
        grown = f"min(k + 2, {options.most})"
        after = f"""%hit = measure %a accepted
%all = measure %c count
%k2 = compute "where(hit < all, max(k - 1, 1), {grown})" k=%k hit=%hit all=%all"""
        numbers = {"k": ("length", options.first)}
        stop = StopRule.carrying("m >= k", numbers, after, measure="count", operands="k=%k")
        return chain_plan(facts, self, options.drafter, options.most, stop=stop)


METHOD = HeuristicLength()
