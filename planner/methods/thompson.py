"""A chain that continues by chance, as likely as the drafter's tokens were accepted so far.

EESD (Liu et al. 2024, arXiv 2406.03853) drafts under Thompson sampling: before each token a rate is
drawn from its Beta posterior and a coin of that rate says whether drafting continues. A coin whose
rate is drawn anew from Beta(k, o) each time falls as one of the posterior's mean, k / (k + o): so
one uniform per token decides. After a round k grows by the accepted tokens and o by the one that
was rejected, if any was. Chance, not the draft, ends a chain, so that the target's distribution is
kept.
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
class ThompsonOptions(Options):
    """Who drafts, and how much."""

    reads = "up to {most} by {drafter}, by chance"

    drafter: Annotated[StoppedDrafter, WHO_DRAFTS]
    most: Annotated[int, Option("drafted tokens at most")]


class Thompson(StoppedChains[ThompsonOptions]):
    """Needs no threshold: what was accepted of a request says how far to draft."""

    summary = "a chain that goes on as likely as its tokens were accepted so far"
    paper = "Liu et al. 2024, arXiv 2406.03853"
    differs = (
        "Draft models and untrained parts of models draft; the paper's exit layer, trained on the "
        "target's first layers (`specplan train --drafter exit_layer`), drafts by `exit_adapter`, "
        "in chains of one length."
    )
    memory = "two numbers of each request"
    family = "chains that go on by chance"
    shapes = ((4,), (10,))
    part_shapes = ((6,),)

    def plan(self, facts: ProblemFacts, options: ThompsonOptions) -> Plan:
        """Draft until the coin says no, verify, accept, count acceptances and rejections."""
        stop = StopRule.carrying(
            "m > k/(k + o)",
            {"k": ("kept", 1.0), "o": ("lost", 1.0)},
            """%hit = measure %a accepted
%all = measure %c count
%k2 = compute "k + hit" k=%k hit=%hit
%o2 = compute "o + min(all - hit, 1)" o=%o all=%all hit=%hit""",
            measure="uniform",
            operands="k=%k o=%o",
        )
        return chain_plan(facts, self, options.drafter, options.most, stop=stop)


METHOD = Thompson()
