"""A chain that ends where the drafter is no longer sure.

Three rules end it, all on the drafter's own probabilities at temperature 1:

- `token`: the last token's probability falls below a bar. DISCO (Mamou et al. 2024, arXiv
  2405.04304) without its classifier, as in the assisted generation of transformers
  (`assistant_confidence_threshold`) and in Kangaroo (arXiv 2404.18911).
- `path`: the product of all tokens' probabilities falls below a bar: SpecDec++ (Huang et al. 2024,
  arXiv 2405.19715) without its trained head.
- `entropy`: the entropy exceeds a bar, in nats. AdaEDL (Agrawal et al. 2024, arXiv 2410.18351)
  bounds the acceptance from below by 1 - sqrt(c H), which falls below a bar where H exceeds
  another.

Bars are constants among which the search chooses by the seconds and tokens of their own rounds.
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

MOST = 10
BARS = {"token": (0.2, 0.4, 0.6, 0.8), "path": (0.1, 0.3, 0.5), "entropy": (0.5, 1.0, 2.0)}
ENDS = {
    "token": "until a token is below",
    "path": "until all stand with less than",
    "entropy": "until the entropy is above",
}


@dataclass(frozen=True)
class AdaptiveLengthOptions(Options):
    """Who drafts, and when it stops."""

    reads = "up to {most} by {drafter}, {end} {bar}"

    drafter: Annotated[StoppedDrafter, WHO_DRAFTS]
    stop: Annotated[
        str, Option("whose confidence: the last token's, that of all so far, or the law's entropy")
    ]
    bar: Annotated[float, Option("least probability, or most nats of entropy")]
    most: Annotated[int, Option("drafted tokens at most")] = MOST

    @property
    def end(self) -> str:
        """The rule in words."""
        return ENDS[self.stop]


class AdaptiveLength(StoppedChains[AdaptiveLengthOptions]):
    """Pays where some tokens are much easier than others and drafting takes long."""

    summary = "a chain that ends where the drafter's confidence falls below a bar"
    paper = (
        "Huang et al. 2024, arXiv 2405.19715; Mamou et al. 2024, arXiv 2405.04304; "
        "Agrawal et al. 2024, arXiv 2410.18351"
    )
    differs = (
        "The drafter's own probabilities stand in for SpecDec++'s trained acceptance head and "
        "DISCO's classifier."
    )
    family = "chains that end by confidence"
    shapes = tuple((stop, bar) for stop, bars in BARS.items() for bar in bars)
    part_shapes = (("token", 0.4), ("token", 0.6))  # as Kangaroo stops the target's first layers

    def plan(self, facts: ProblemFacts, options: AdaptiveLengthOptions) -> Plan:
        """Draft until it is not worth going on, verify, accept."""
        if options.stop == "entropy":
            stop = StopRule(f"m > {options.bar}", measure="entropy")
        else:
            stop = StopRule(f"m < {options.bar}", product=options.stop == "path")
        return chain_plan(facts, self, options.drafter, options.most, stop=stop)


METHOD = AdaptiveLength()
