"""A draft model and the target draw with the same randomness: the text depends on the seed alone.

Drafter-invariant speculative decoding (Daliri et al. 2024, arXiv 2408.07978), its Gumbel coupling:
every position of the text has its own noise, the draft model and the target both take the best
token under it, and a draft is accepted where they agree. Another draft model, or none, gives the
same text. At temperature 0 both take their best token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.chains import drafted_chain
from specplan.planner.templates.plan_text import draft_and_verify, draft_passes
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

STREAM = "coupled"


@dataclass(frozen=True)
class SharedDrawsOptions(Options):
    """Which model drafts, and how far."""

    reads = "chain of {length} by {draft}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens", (2, 4, 6, 8))]


class SharedDraws(ProfiledByRunning[SharedDrawsOptions]):
    """Accepts a little less than the token rule; sampled text stays the same under any draft."""

    summary = "draft model and target draw alike, so that text depends on the seed alone"
    paper = "Daliri et al. 2024, arXiv 2408.07978"
    differs = "Of the paper's two couplings it has the one by Gumbel noise, not weighted MinHash."
    family = "chains"

    def plan(self, facts: ProblemFacts, options: SharedDrawsOptions) -> Plan:
        """Race over the same numbers as the target will, verify, accept what agrees."""
        draft, length = options.draft, options.length
        forward, _ = draft_passes(draft)
        drafted, rule = drafted_chain(length, forward, drawn=False), "gumbel by=%s"
        if not facts.greedy:
            drafted = f"%s = uniform {length + 1} stream={STREAM} key=position\n" + drafted.replace(
                "logits=%q", "logits=%q how=shared by=%s"
            )
        return draft_and_verify(facts, self, drafted, length, models=(draft,), rule=rule)


METHOD = SharedDraws()
