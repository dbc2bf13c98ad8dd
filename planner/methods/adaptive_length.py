"""A chain that ends where the drafter is no longer sure: how far is drafted follows the context.

Three rules by which drafting stops, all on the drafter's own law at temperature 1:

- `token`: the last token's probability falls below a bar. DISCO (Mamou et al. 2024, arXiv
  2405.04304) with the probability itself in place of its classifier, as in the assisted generation
  of transformers (`assistant_confidence_threshold`) and in Kangaroo (arXiv 2404.18911).
- `path`: the probability that all tokens so far stand falls below a bar: SpecDec++ (Huang et al.
  2024, arXiv 2405.19715), with the draft model's own probabilities in place of its trained head.
- `entropy`: the law's entropy passes a bar, in nats. AdaEDL (Agrawal et al. 2024, arXiv 2410.18351)
  bounds the acceptance from below by 1 - sqrt(c H), which falls below a bar where H passes another.

Bars are constants among which the search chooses by what their own rounds take and emit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.stopped_chains import Stopped, StoppedChains, StopRule, stopped_plan

MOST = 10
"""Tokens that are drafted at most."""
BARS = {
    "token": (0.2, 0.4, 0.6, 0.8),
    "path": (0.1, 0.3, 0.5),
    "entropy": (0.5, 1.0, 2.0),
}
PART_BARS = {"token": (0.4, 0.6)}
"""Of parts of models, as Kangaroo stops the target's first layers."""


@dataclass(frozen=True)
class AdaptiveLengthOptions(Options):
    """Who drafts, and when it stops.

    Attributes:
        drafter: a draft model, or a part of a model: the target's first layers, the target without
            some blocks, or a model with few cached tokens.
        stop: the rule.
        bar: a probability, or nats of entropy.
        most: drafted tokens at most.
    """

    drafter: Stopped
    stop: str
    bar: float
    most: int = MOST

    @property
    def words(self) -> str:
        """`up to 10 by draft, until a token is below 0.4`."""
        ends = {
            "token": f"until a token is below {self.bar}",
            "path": f"until all stand with less than {self.bar}",
            "entropy": f"until the entropy is above {self.bar}",
        }
        return f"up to {self.most} by {self.drafter}, {ends[self.stop]}"


class AdaptiveLength(StoppedChains[AdaptiveLengthOptions]):
    """Pays where some tokens are much easier than others and drafting takes long."""

    name: ClassVar[str] = "adaptive_length"
    summary: ClassVar[str] = "a chain that ends where the drafter's confidence falls below a bar"
    paper: ClassVar[str] = (
        "Huang et al. 2024, arXiv 2405.19715; Mamou et al. 2024, arXiv 2405.04304; "
        "Agrawal et al. 2024, arXiv 2410.18351"
    )
    family: ClassVar[str] = "chains that end by confidence"
    domains: ClassVar[Mapping[str, str]] = {
        "drafter": "who drafts",
        "stop": "whose confidence: the last token's, that of all so far, or the law's entropy",
        "bar": "least probability, or most nats of entropy",
        "most": "drafted tokens at most",
    }

    def settings_of(self, drafter: Stopped) -> Iterator[AdaptiveLengthOptions]:
        """Every rule and bar by every draft model; two bars by parts of models."""
        for stop, bars in (BARS if isinstance(drafter, Model) else PART_BARS).items():
            yield from (AdaptiveLengthOptions(drafter, stop, bar) for bar in bars)

    def plan(self, facts: ProblemFacts, options: AdaptiveLengthOptions) -> Plan:
        """Draft until it is not worth going on, verify, accept."""
        if options.stop == "entropy":
            stop = StopRule(f"m > {options.bar}", measure="entropy")
        else:
            stop = StopRule(f"m < {options.bar}", product=options.stop == "path")
        return stopped_plan(facts, self.name, options.drafter, options.most, stop)


METHOD = AdaptiveLength()
