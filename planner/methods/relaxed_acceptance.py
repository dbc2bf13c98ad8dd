"""A draft model writes a chain; tokens nearly as probable as the target's first choice stand.

Relaxed acceptance, which TensorRT-LLM offers for the thinking phase of reasoning models (technical
blog 2, "DeepSeek R1 MTP Implementation and Optimization", 2025): rule `relaxed`, with the values
recommended there. Lossy at every temperature: more of the output is the draft's own than of
lossless drafts by the same model, and where a token is rejected the target's best follows.
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

LENGTHS = (2, 4, 6, 8)
TOP, DELTA = 10, 0.6
"""Recommended by the source."""


@dataclass(frozen=True)
class RelaxedOptions(Options):
    """Which model drafts, and how far."""

    reads = "{length} by {draft}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens", LENGTHS)]


class RelaxedAcceptance(ProfiledByRunning[RelaxedOptions]):
    """Longer accepted runs than of any lossless rule; changes the output distribution."""

    summary = "a draft model, judged by what is nearly the target's first choice"
    paper = "NVIDIA 2025, TensorRT-LLM technical blog 2, DeepSeek R1 MTP"
    differs = (
        "A draft model drafts, not MTP modules, and all of the output is relaxed, not only the "
        "thinking phase."
    )
    law = "free"
    family = "chains"

    def plan(self, facts: ProblemFacts, options: RelaxedOptions) -> Plan:
        """Draft the best tokens, verify, accept what is probable enough."""
        draft, length, (forward, _) = options.draft, options.length, draft_passes(options.draft)
        drafted = drafted_chain(length, forward, drawn=False)
        rule = f"relaxed(top={TOP}, delta={DELTA})"
        return draft_and_verify(facts, self, drafted, length, models=(draft,), rule=rule)


METHOD = RelaxedAcceptance()
