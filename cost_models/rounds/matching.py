"""Rounds whose lookups may have no match: their demands by which of them is the first to match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from specplan.cost_models.cost import Quantity
from specplan.cost_models.rounds.demands import (
    ForwardDemand,
    Matching,
    OpDemand,
    RoundDemands,
    round_demands,
)
from specplan.ir.plan import Plan, Round
from specplan.ir.types.matching import deciding_lookups, match_copied, outcomes_of, specialized


@lru_cache(maxsize=1024)
def by_outcome(plan: Plan, item: Round) -> tuple[RoundDemands, ...]:
    """What a round asks for by outcome; empty where it has no forms.

    The host looks everything up before any of them. Remembered for the rounds read last.
    """
    whole, lookups = round_demands(plan, item), deciding_lookups(item)
    asked = [one for one in whole.steps if isinstance(one, OpDemand) and one.op in lookups]

    def forms() -> Iterator[RoundDemands]:
        for outcome in outcomes_of(item):
            form = specialized(plan, item.name, outcome)
            if form is None:
                yield whole
                continue
            demands = round_demands(form, form.round(item.name))
            own = {one.op for one in demands.steps if isinstance(one, OpDemand)}
            missing = (one for one in asked if one.op not in own)
            yield replace(demands, steps=(*missing, *demands.steps))

    every = tuple(forms())
    return () if all(one is whole for one in every) else every


def with_matching(
    plan: Plan, item: Round, demands: RoundDemands, shares: Sequence[float]
) -> RoundDemands:
    """Demands that tell how often the round's lookups have which outcome.

    Args:
        plan: holds the round.
        item: the round.
        demands: of the round as a whole.
        shares: of a request's rounds, by outcome.
    """
    forms = by_outcome(plan, item)
    if not forms or max(shares[1:]) == 0:
        return demands
    return replace(demands, matching=Matching(tuple(shares), forms))


def outcomes(
    demands: RoundDemands, batch: Quantity, *, skips_dead: bool
) -> Sequence[tuple[Quantity, RoundDemands]]:
    """P(all requests of a batch have one outcome), for each, or several; and the demands then.

    Args:
        demands: with `matching`.
        batch: requests, a number or an array.
        skips_dead: dead nodes are left out, and a text is searched once, as in compiled rounds;
            else only what follows the first lookup's match is left out.
    """
    matching = demands.matching
    assert matching is not None
    same = [share**batch for share in matching.shares]
    forms: Sequence[RoundDemands] = [matching.forms[0], *[demands] * len(same)]
    if skips_dead:
        forms = [*map(searched_once, (*matching.forms, demands))]
    return [*zip((*same, 1.0 - sum(same)), forms, strict=True)]


def searched_once(demands: RoundDemands) -> RoundDemands:
    """With one lookup for all that copy after one longest match.

    The host of a compiled round searches a text once for them.
    """
    searched, steps = set[int | None](), list[ForwardDemand | OpDemand]()
    for step in demands.steps:
        longest = match_copied(step.op)
        if longest not in searched:
            steps.append(step)
        searched |= {longest} - {None}
    return replace(demands, steps=tuple(steps))
