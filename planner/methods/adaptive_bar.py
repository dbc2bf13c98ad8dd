"""A chain that ends where a token falls below a bar, which moves until enough is accepted.

Draft & Verify (Zhang et al. 2023, arXiv 2309.08168, section 3.3, and its released code): after each
round the request's acceptance rate r goes half the way to that of the round, and the bar moves by
0.1 of a step of 0.01: up where r is below the rate that is wanted, down where it is not and the
draft was stopped by the bar. Bar and rate are numbers of each request that go from round to round.

There the target drafts without some of its blocks; here it does so where such a set is known
(`layer_skip` finds them), and so do draft models, the target's first layers, and either with few
cached tokens. Above temperature 0 tokens are drawn and judged by the token rule, which keeps the
target's law; the released sampler does not.
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

FIRST_BAR = 0.6
WANTED = (0.5, 0.7, 0.9)
"""Acceptance rates; the paper wants 0.9."""
MOST = (4, 8, 12)
PART_MOST = 6


@dataclass(frozen=True)
class AdaptiveBarOptions(Options):
    """Who drafts, and what the bar is moved for.

    Attributes:
        drafter: a draft model, or a part of a model: the target's first layers, the target without
            some blocks, or a model with few cached tokens.
        wanted: share of drafted tokens that are to be accepted.
        most: drafted tokens at most.
    """

    drafter: Stopped
    wanted: float
    most: int

    @property
    def words(self) -> str:
        """`up to 8 by draft, 0.9 of them to be accepted`."""
        return f"up to {self.most} by {self.drafter}, {self.wanted} of them to be accepted"


class AdaptiveBar(StoppedChains[AdaptiveBarOptions]):
    """Follows texts whose difficulty changes."""

    name: ClassVar[str] = "adaptive_bar"
    summary: ClassVar[str] = "a chain that ends below a bar, which follows what was accepted"
    paper: ClassVar[str] = "Zhang et al. 2023, arXiv 2309.08168"
    memory: ClassVar[str] = "two numbers of each request"
    family: ClassVar[str] = "chains with a moving bar"
    domains: ClassVar[Mapping[str, str]] = {
        "drafter": "who drafts",
        "wanted": "share of drafted tokens that are to be accepted",
        "most": "drafted tokens at most",
    }

    def settings_of(self, drafter: Stopped) -> Iterator[AdaptiveBarOptions]:
        """A few lengths and rates by every draft model, one length by parts of models."""
        for most in MOST if isinstance(drafter, Model) else (PART_MOST,):
            yield from (AdaptiveBarOptions(drafter, wanted, most) for wanted in WANTED)

    def plan(self, facts: ProblemFacts, options: AdaptiveBarOptions) -> Plan:
        """Draft down to the bar, verify, accept, move the bar."""
        stop = StopRule(
            "m < b",
            operands="b=%b",
            before="%b = load @bar\n%h = load @rate",
            after=f"""%hit = measure %a accepted
%all = measure %c count
%h2 = compute "0.5*h + 0.5*hit/max(all, 1)" h=%h hit=%hit all=%all
%down = compute "where(all < {options.most}, b - 0.01, b)" b=%b all=%all
%to = compute "where(h < {options.wanted}, b + 0.01, d)" h=%h2 b=%b d=%down
%b2 = compute "0.9*b + 0.1*t" b=%b t=%to
store @bar %b2
store @rate %h2""",
            states=(
                f"@bar = value number(init={FIRST_BAR})",
                f"@rate = value number(init={options.wanted})",
            ),
        )
        return stopped_plan(facts, self.name, options.drafter, options.most, stop)


METHOD = AdaptiveBar()
