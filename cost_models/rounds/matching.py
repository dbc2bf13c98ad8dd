"""Rounds whose lookup may have no match: their demands with one and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from specplan.cost_models.cost import Quantity
from specplan.cost_models.rounds.demands import Matching, OpDemand, RoundDemands, round_demands
from specplan.ir.plan import Plan, Round
from specplan.ir.types.matching import deciding_lookup, specialized


@lru_cache(maxsize=1024)
def by_match(plan: Plan, item: Round) -> tuple[RoundDemands, RoundDemands] | None:
    """What a round asks for with a match and without; None where it has no form for that.

    The host looks up before either. Remembered for the rounds read last.
    """
    lookup = deciding_lookup(item)
    without = specialized(plan, item.name, matched=False)
    if lookup is None or without is None:
        return None
    whole = round_demands(plan, item)
    lookups = tuple(s for s in whole.steps if isinstance(s, OpDemand) and s.op == lookup)
    unmatched = round_demands(without, without.round(item.name))
    unmatched = replace(unmatched, steps=(*lookups, *unmatched.steps))
    matched = specialized(plan, item.name, matched=True)
    return whole if matched is None else round_demands(matched, matched.round(item.name)), unmatched


def with_matching(plan: Plan, item: Round, demands: RoundDemands, without: float) -> RoundDemands:
    """Demands that tell how often the round's lookup has no match.

    Args:
        plan: holds the round.
        item: the round.
        demands: of the round as a whole.
        without: share of a request's rounds that have no match; 0 where it is not known.
    """
    forms = by_match(plan, item) if without else None
    return demands if forms is None else replace(demands, matching=Matching(without, *forms))


def outcomes(
    demands: RoundDemands, batch: Quantity, *, skips_dead: bool
) -> Sequence[tuple[Quantity, RoundDemands]]:
    """P(every request of a batch has a match, none has, some have), and the demands then.

    Args:
        demands: with `matching`.
        batch: requests, a number or an array.
        skips_dead: without a match, dead nodes are left out.
    """
    matching = demands.matching
    assert matching is not None
    every, none = (1.0 - matching.without) ** batch, matching.without**batch
    unmatched = matching.unmatched if skips_dead else demands
    return (every, matching.matched), (none, unmatched), (1.0 - every - none, demands)
