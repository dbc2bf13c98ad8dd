"""One length for the whole batch, longer as long as some request takes all of it.

BASS (Qian et al. 2024, arXiv 2404.15778): requests of a batch draft side by side, equally many
tokens, and each goes on from what was accepted of it, so that texts grow ragged. After a round in
which some request accepted the whole draft the next one is longer, after any other one shorter. It
begins with 7 tokens, and at most 32 are drafted, as there. `heuristic_length` does the same for
each request by itself.
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
class BatchLengthOptions(Options):
    """Who drafts, and how much."""

    reads = "{first} by {drafter}, then two more or one less for the batch, up to {most}"

    drafter: Annotated[StoppedDrafter, WHO_DRAFTS]
    most: Annotated[int, Option("drafted tokens at most")]
    first: Annotated[int, Option("drafted tokens of the first round")] = 7


class BatchLength(StoppedChains[BatchLengthOptions]):
    """Keeps a batch together: no request waits while another drafts on."""

    summary = "a chain as long for all requests, which follows the best of the batch"
    paper = "Qian et al. 2024, arXiv 2404.15778"
    differs = (
        "A draft becomes shorter by one token where the paper shortens long drafts faster, and the "
        "acceptance at every batch size is that of batches of eight."
    )
    memory = "one number of each request"
    family = "chains that follow the batch"
    shapes = ((8,), (16,), (32,))
    part_shapes = ((8,),)
    shares = True

    def plan(self, facts: ProblemFacts, options: BatchLengthOptions) -> Plan:
        """Draft the batch's length, verify, accept, draft more or fewer the next time."""
        after = f"""%hit = measure %a accepted
%best = measure %hit batch_max
%k2 = compute "where(best < k, max(k - 1, 1), min(k + 2, {options.most}))" best=%best k=%k"""
        numbers = {"k": ("length", options.first)}
        stop = StopRule.carrying("m >= k", numbers, after, measure="count", operands="k=%k")
        return chain_plan(facts, self, options.drafter, options.most, stop=stop)


METHOD = BatchLength()
