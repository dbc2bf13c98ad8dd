"""Rounds whose loop ends by request: their demands when it ends after a number of trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from specplan.cost_models.cost import Quantity
from specplan.cost_models.rounds.demands import RoundDemands, round_demands
from specplan.ir.op import Op
from specplan.ir.plan import Plan, Round, walk


def stopping_loops(item: Round) -> list[Op]:
    """Loops of a round that may end before their last trip."""
    return [op for op in walk(item.ops) if op.may_stop]


def with_ends(
    plan: Plan, item: Round, demands: RoundDemands, stopped: Sequence[float]
) -> RoundDemands:
    """What a round asks for, where it is known how many trips its one loop takes.

    Args:
        plan: holds the round.
        item: the round, of one loop that may end early and that stands in no other.
        demands: of the round when all trips run.
        stopped: share of a request's rounds that took at most 0, 1, 2, ... trips, up to 1.
    """
    (loop,) = stopping_loops(item)
    counts = range(min(loop.trips, len(stopped) - 1) + 1)
    ends = (
        (1.0 if count == counts[-1] else stopped[count], _ended_after(plan, item, count))
        for count in counts
    )
    return replace(demands, ends=tuple(ends))


def shares_of_batch(demands: RoundDemands, batch: Quantity) -> list[Quantity]:
    """P(the loop takes no trip, one, two, ...).

    A trip runs as long as any request of the batch goes on; requests stop each on its own.

    Args:
        demands: with `ends`.
        batch: requests, a number or an array.
    """
    shares: list[Quantity] = []
    before: Quantity = 0.0
    for ended, _ in demands.ends:
        now: Quantity = ended**batch
        shares.append(now - before)
        before = now
    return shares


@lru_cache(maxsize=1024)
def _ended_after(plan: Plan, item: Round, count: int) -> RoundDemands:
    """What the round asks for with that number of trips."""
    ops = tuple(_cut(op, count) for op in item.ops)
    cut = replace(item, ops=ops)
    rounds = tuple(cut if one is item else one for one in plan.rounds)
    return round_demands(replace(plan, rounds=rounds), cut)


def _cut(op: Op, count: int) -> Op:
    return op.limited(count) if op.may_stop else op
