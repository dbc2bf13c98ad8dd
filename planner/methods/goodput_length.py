"""A chain as long as the request's own acceptance makes worthwhile at a token's price.

SmartSpec (Liu et al. 2024, arXiv 2406.14066, TurboSpec in later versions) gives each request at
every step the length whose goodput is largest: tokens that it is expected to emit over the time of
the step. With r, the rate at which the request's draft tokens were accepted so far, a chain of j
emits (1 - r^(j+1)) / (1 - r) tokens on average (Leviathan et al. 2023, arXiv 2211.17192, equation
1) and takes 1 + c j, where c is the price of another draft token over that of a step without any.
That ratio rises to one maximum, so that a chain ends where one token more would lower it. The rate
is that of draft tokens whose predecessors were accepted, older rounds counting nine tenths of the
next each.

The price c is a setting: the search chooses it, with the device's prices and the rounds that each
setting ran, for every batch size.
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

FIRST_ACCEPTED, FIRST_JUDGED = 7.0, 10.0
"""Draft tokens before the first round, as many as ten rounds weigh that judge one each."""


@dataclass(frozen=True)
class GoodputLengthOptions(Options):
    """Who drafts, and what a draft token costs."""

    reads = "up to {most} by {drafter}, while one more is worth {cost} of a step"

    drafter: Annotated[StoppedDrafter, WHO_DRAFTS]
    cost: Annotated[float, Option("time of another draft token over that of a step without any")]
    most: Annotated[int, Option("drafted tokens at most")] = 10


class GoodputLength(StoppedChains[GoodputLengthOptions]):
    """Drafts more for requests whose drafts are accepted, in a batch of both kinds too."""

    summary = "a chain whose length follows the request's acceptance, for the most tokens by time"
    paper = "Liu et al. 2024, arXiv 2406.14066"
    differs = (
        "The price of a draft token is a setting, chosen by the planner's prices, where SmartSpec "
        "fits it while serving; a request drafts one token at least."
    )
    memory = "two numbers of each request"
    family = "chains for goodput"
    shapes = tuple((cost,) for cost in (0.05, 0.1, 0.2, 0.4))
    part_shapes = tuple((cost,) for cost in (0.1, 0.2, 0.4))

    def plan(self, facts: ProblemFacts, options: GoodputLengthOptions) -> Plan:
        """Draft while it pays at the request's rate, verify, accept, move the rate."""
        cost = options.cost
        power = "exp((m + 1)*log(r))"  # chance that one more token than m is accepted
        stop = StopRule.carrying(
            f"{power}*(1 + {cost}*m)*(1 - r) <= {cost}*(1 - {power})",
            {"h": ("accepted", FIRST_ACCEPTED), "j": ("judged", FIRST_JUDGED)},
            """%hit = measure %a accepted
%all = measure %c count
%h2 = compute "0.9*h + hit" h=%h hit=%hit
%j2 = compute "0.9*j + min(hit + 1, all)" j=%j hit=%hit all=%all""",
            measure="count",
            operands="r=%r0",
            before='%r0 = compute "max(min(h/j, 0.98), 0.02)" h=%h j=%j',
        )
        return chain_plan(facts, self, options.drafter, options.most, stop=stop)


METHOD = GoodputLength()
