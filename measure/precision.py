"""How sure an acceptance profile is of what its proposer's candidates emit per round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.demands import round_demands
from specplan.planner import Family, ProblemFacts, discover_methods

PRECISION = 0.03
"""Half width of the 90 % interval of tokens per round, relative, that is narrow enough."""
LEAST_PROMPTS = 16
"""Prompts are taken by so many: intervals over fewer prompts cannot be trusted."""
MOST_CANDIDATES = 12
"""Candidates looked at, spread evenly over all, the widest among them."""
Tree = tuple[tuple[int, ...], tuple[int, ...]]


def relative_half_width(facts: ProblemFacts, profile: AcceptanceProfile) -> float:
    """Largest relative half width of tokens per round among candidates; 0 without candidates.

    Args:
        facts: the problem; its methods are asked what they would draft with this profile.
        profile: of one proposer.
    """
    known = replace(facts, profiles={**facts.profiles, profile.key.proposer: profile})
    trees = sorted(set(_trees(known, profile.key.proposer)), key=len)
    step = max(1, -(-len(trees) // MOST_CANDIDATES))
    widest = 0.0
    for parents, ranks in trees[::-1][::step]:
        value = profile.tokens_per_round(parents, ranks)
        widest = max(widest, (value.high - value.low) / 2.0 / value.mean)
    return widest


def _trees(facts: ProblemFacts, proposer: str) -> Iterator[Tree]:
    """Static trees, as (parents, ranks), of all candidates that this proposer drafts for."""
    allowed = facts.problem.methods
    for name, method in discover_methods().items():
        if allowed is not None and name not in allowed:
            continue
        for family in method.choices(facts):
            if not isinstance(family, Family):
                continue
            for options in family.settings:
                if method.proposer(options) != proposer:
                    continue
                plan = method.plan(facts, options)
                for judged in round_demands(plan, plan.rounds[0]).judged:
                    if judged.parents is not None and judged.ranks is not None:
                        yield tuple(judged.parents), tuple(judged.ranks)
