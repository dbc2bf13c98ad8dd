"""A chain that goes on by chance, as likely as the drafter's tokens stood in this request so far.

EESD (Liu et al. 2024, arXiv 2406.03853) drafts under Thompson sampling: before each token a rate is
drawn from its Beta posterior and a coin of that rate says whether drafting goes on. A coin whose
rate is drawn anew from Beta(k, o) each time falls as one of the posterior's mean, k / (k + o): so
one uniform per token decides. After a round k grows by the accepted tokens and o by the one that
was rejected, if any was. Chance, not the draft, ends a chain, so that the target's law is kept.

There the target's first layers draft, with a trained layer of their own; here draft models do, and
parts of models without any training.
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

MOST = (4, 10)
PART_MOST = (6,)


@dataclass(frozen=True)
class ThompsonOptions(Options):
    """Who drafts, and how much.

    Attributes:
        drafter: a draft model, or a part of a model: the target's first layers, the target without
            some blocks, or a model with few cached tokens.
        most: drafted tokens at most.
    """

    drafter: Stopped
    most: int

    @property
    def words(self) -> str:
        """`up to 10 by draft, by chance`."""
        return f"up to {self.most} by {self.drafter}, by chance"


class Thompson(StoppedChains[ThompsonOptions]):
    """Needs no threshold: what was accepted of a request tells how far to draft."""

    name: ClassVar[str] = "thompson"
    summary: ClassVar[str] = "a chain that goes on as likely as its tokens were accepted so far"
    paper: ClassVar[str] = "Liu et al. 2024, arXiv 2406.03853"
    memory: ClassVar[str] = "two numbers of each request"
    family: ClassVar[str] = "chains that go on by chance"
    domains: ClassVar[Mapping[str, str]] = {
        "drafter": "who drafts",
        "most": "drafted tokens at most",
    }

    def settings_of(self, drafter: Stopped) -> Iterator[ThompsonOptions]:
        """Short and long chains by every draft model, one length by parts of models."""
        lengths = MOST if isinstance(drafter, Model) else PART_MOST
        return (ThompsonOptions(drafter, most) for most in lengths)

    def plan(self, facts: ProblemFacts, options: ThompsonOptions) -> Plan:
        """Draft until the coin says no, verify, accept, note what stood."""
        stop = StopRule(
            "m > k/(k + o)",
            measure="uniform",
            operands="k=%k o=%o",
            before="%k = load @kept\n%o = load @lost",
            after="""%hit = measure %a accepted
%all = measure %c count
%k2 = compute "k + hit" k=%k hit=%hit
%o2 = compute "o + min(all - hit, 1)" o=%o all=%all hit=%hit
store @kept %k2
store @lost %o2""",
            states=("@kept = value number(init=1.0)", "@lost = value number(init=1.0)"),
        )
        return stopped_plan(facts, self.name, options.drafter, options.most, stop)


METHOD = Thompson()
