"""A chain as long as the last one allows: two tokens more if all were accepted, else one less.

The schedule `heuristic` of assisted generation in transformers (Gante 2023, "Assisted Generation: a
new direction toward low-latency text generation"; `AssistedCandidateGenerator` and its
`num_assistant_tokens_schedule`): after a round all of whose tokens were accepted the next one
drafts two more, after any other one fewer, but at least one. transformers began with 5 tokens, and
with 20 since it ends chains by confidence too; the length is a number of each request here, as with
its `heuristic_transient`, and `most` bounds it.
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

FIRST = 5
"""Tokens of the first round."""
MOST = (6, 16)
PART_MOST = (6,)


@dataclass(frozen=True)
class HeuristicLengthOptions(Options):
    """Who drafts, and how much.

    Attributes:
        drafter: a draft model, or a part of a model: the target's first layers, the target without
            some blocks, or a model with few cached tokens.
        most: drafted tokens at most.
        first: drafted tokens of the first round.
    """

    drafter: Stopped
    most: int
    first: int = FIRST

    @property
    def words(self) -> str:
        """`5 by draft, then two more or one less, up to 16`."""
        return f"{self.first} by {self.drafter}, then two more or one less, up to {self.most}"


class HeuristicLength(StoppedChains[HeuristicLengthOptions]):
    """Follows texts whose difficulty changes, by counting alone."""

    name: ClassVar[str] = "heuristic_length"
    summary: ClassVar[str] = "a chain that gets longer after success and shorter after failure"
    paper: ClassVar[str] = "Gante 2023, huggingface.co/blog/assisted-generation"
    memory: ClassVar[str] = "one number of each request"
    family: ClassVar[str] = "chains that follow success"
    domains: ClassVar[Mapping[str, str]] = {
        "drafter": "who drafts",
        "most": "drafted tokens at most",
        "first": "drafted tokens of the first round",
    }

    def settings_of(self, drafter: Stopped) -> Iterator[HeuristicLengthOptions]:
        """Short and long chains by every draft model, one length by parts of models."""
        lengths = MOST if isinstance(drafter, Model) else PART_MOST
        return (HeuristicLengthOptions(drafter, most) for most in lengths)

    def plan(self, facts: ProblemFacts, options: HeuristicLengthOptions) -> Plan:
        """Draft so many tokens, verify, accept, draft more or fewer the next time."""
        stop = StopRule(
            "m >= k",
            measure="count",
            operands="k=%k",
            before="%k = load @length",
            after=f"""%hit = measure %a accepted
%all = measure %c count
%k2 = compute "where(hit < all, max(k - 1, 1), min(k + 2, {options.most}))" k=%k hit=%hit all=%all
store @length %k2""",
            states=(f"@length = value number(init={float(options.first)})",),
        )
        return stopped_plan(facts, self.name, options.drafter, options.most, stop)


METHOD = HeuristicLength()
