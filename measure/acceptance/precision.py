"""How sure an acceptance profile is of what its drafter's candidates emit per round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.planner import ProblemFacts, settings_by

PRECISION = 0.03
"""Half width of the 90 % interval of tokens per round, relative, that is narrow enough."""
LEAST_PROMPTS = 16
"""Prompts are taken by so many: intervals over fewer prompts cannot be trusted."""
MOST_CANDIDATES = 12
"""Candidates looked at, spread evenly over all, the widest among them."""


def relative_half_width(facts: ProblemFacts, profile: AcceptanceProfile) -> float:
    """Largest relative half width of tokens per round among candidates; 0 without candidates.

    Args:
        facts: the problem; its methods are asked what they would draft with this profile.
        profile: of one drafter.
    """
    known = replace(facts, profiles={**facts.profiles, profile.key.drafter: profile})
    drafts = sorted(_drafts(known, profile), key=lambda drafting: drafting.demands.judged[0].nodes)
    step = max(1, -(-len(drafts) // MOST_CANDIDATES))
    widest = 0.0
    for drafting in drafts[::-1][::step]:
        value = drafting.tokens_per_round
        widest = max(widest, (value.high - value.low) / 2.0 / value.mean)
    return widest


def _drafts(facts: ProblemFacts, profile: AcceptanceProfile) -> Iterator[Drafting]:
    """What all candidates draft for which the profile's drafter does."""
    for setting in settings_by(facts, profile.key.drafter):
        plan = setting.method.plan(facts, setting.options)
        found = (read_drafting(plan, item, profile.evidence) for item in plan.rounds)
        yield from (drafting for drafting in found if isinstance(drafting, Drafting))
