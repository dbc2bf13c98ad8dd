"""A chain that ends where a token's probability falls below a bar that follows acceptance.

Draft & Verify (Zhang et al. 2023, arXiv 2309.08168, section 3.3, and its released code): after each
round the request's acceptance rate r moves half the way to that of the round, and the bar moves by
0.1 of a step of 0.01: up where r is below the rate that is wanted, down where it is not and the bar
ended the draft. Bar and rate are numbers of each request that go from round to round.

There the target drafts without some of its blocks; here it does so where such a set is known
(`layer_skip` searches for them). Above temperature 0 tokens are drawn and judged by the token rule,
which keeps the target's distribution; the released sampler does not.
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

FIRST_BAR = 0.6
WANTED = (0.5, 0.7, 0.9)
"""Acceptance rates; the paper wants 0.9."""


@dataclass(frozen=True)
class AdaptiveBarOptions(Options):
    """Who drafts, and what the bar is moved for."""

    reads = "up to {most} by {drafter}, {wanted} of them to be accepted"

    drafter: Annotated[StoppedDrafter, WHO_DRAFTS]
    wanted: Annotated[float, Option("share of drafted tokens that are to be accepted")]
    most: Annotated[int, Option("drafted tokens at most")]


class AdaptiveBar(StoppedChains[AdaptiveBarOptions]):
    """Follows texts whose difficulty changes."""

    summary = "a chain that ends below a bar, which follows what was accepted"
    paper = "Zhang et al. 2023, arXiv 2309.08168"
    differs = (
        "Draft models and other parts of models draft as well, not only the target that skips."
    )
    memory = "two numbers of each request"
    family = "chains with a moving bar"
    shapes = tuple((wanted, most) for most in (4, 8, 12) for wanted in WANTED)
    part_shapes = tuple((wanted, 6) for wanted in WANTED)

    def plan(self, facts: ProblemFacts, options: AdaptiveBarOptions) -> Plan:
        """Draft down to the bar, verify, accept, move the bar."""
        stop = StopRule.carrying(
            "m < b",
            {"b": ("bar", FIRST_BAR), "h": ("rate", options.wanted)},
            f"""%hit = measure %a accepted
%all = measure %c count
%h2 = compute "0.5*h + 0.5*hit/max(all, 1)" h=%h hit=%hit all=%all
%down = compute "where(all < {options.most}, b - 0.01, b)" b=%b all=%all
%to = compute "where(h < {options.wanted}, b + 0.01, d)" h=%h2 b=%b d=%down
%b2 = compute "0.9*b + 0.1*t" b=%b t=%to""",
            operands="b=%b",
        )
        return chain_plan(facts, self, options.drafter, options.most, stop=stop)


METHOD = AdaptiveBar()
