"""What one round of a plan takes: the sum over its demands, each with its static sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from specplan.cost_models.cost import Cost, Quantity, maximum
from specplan.cost_models.devices.device import UnpricedError
from specplan.cost_models.intervals import NO_TIME, Seconds, beside, side_by_side, total
from specplan.cost_models.rounds.demands import ForwardDemand, OpDemand, RoundDemands, round_demands
from specplan.cost_models.rounds.matching import outcomes
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.stopping import shares_of_batch
from specplan.ir.plan import Plan, Round
from specplan.ir.text.printer import print_op
from specplan.ir.types.infer import InferenceError

PricedStep = tuple[ForwardDemand | OpDemand, Seconds]


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Why a plan has no price.

    Attributes:
        op: the op concerned, as text; "" when it is the plan as a whole.
        reason: what is missing and how to mend it.
    """

    op: str
    reason: str

    def __str__(self) -> str:
        return f"`{self.op}` has no price: {self.reason}" if self.op else self.reason


@dataclass(frozen=True, slots=True)
class PricedOp:
    """All executions of one op of a round.

    Attributes:
        op: keyword, with `:rule`, `:how` or `:first:last` layers where there are several,
            and `:without_` blocks that are left out.
        model: the model that runs, None for other ops.
        width: query tokens of a forward, else nodes worked on, per request.
        times: executions per round; the mean of them where a loop may end early or rounds change.
        seconds: of all executions.
    """

    op: str
    model: str | None
    width: int
    times: Quantity
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class RoundPrice:
    """What a round takes.

    Attributes:
        seconds: wall-clock time.
        breakdown: where it goes, in program order; `round` is the glue between the ops.
        assumptions: what was taken for granted.
    """

    seconds: Seconds
    breakdown: tuple[PricedOp, ...]
    assumptions: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def read_round(plan: Plan, item: Round) -> RoundDemands | Unpriced:
    """What a round asks for, or why it has no price on any device."""
    try:
        return round_demands(plan, item)
    except InferenceError as error:
        return Unpriced("", str(error))


def price_round(
    demands: RoundDemands, pricer: RoundPricer, lag: Mapping[str, Quantity]
) -> RoundPrice | Unpriced:
    """Wall-clock time of a round, the sum of what it asks for, and where it goes.

    Args:
        demands: of the round.
        pricer: prices them, at one batch and context or on a grid.
        lag: per cache, the probability that some request of the batch needs all of a forward's
            `pending` tokens rather than the root alone; 1 where not given.
    """
    parts: list[tuple[str | None, PricedOp]] = []
    weighted: list[tuple[Quantity, Seconds]] = []
    for share, one in _ways(demands, pricer):
        priced = _price_steps(one, pricer, lag)
        if isinstance(priced, Unpriced):
            return priced
        weighted.append((share, _wall_clock(priced, pricer)))
        parts += [(step.lane, _priced_op(step, seconds, share)) for step, seconds in priced]
    parts.append((None, PricedOp("round", None, 1, 1, pricer.glue())))
    return RoundPrice(_weighed(weighted), _merged(parts), _assumptions(demands, pricer))


def mean_round(prices: Sequence[RoundPrice], weights: Sequence[Quantity]) -> RoundPrice:
    """The mean of rounds that take turns, with the share of each among all rounds."""
    pairs = list(zip(prices, weights, strict=True))
    parts = [
        (None, replace(part, times=part.times * weight, seconds=part.seconds * weight))
        for price, weight in pairs
        for part in price.breakdown
    ]
    return RoundPrice(
        total(price.seconds * weight for price, weight in pairs),
        _merged(parts),
        tuple(dict.fromkeys(word for price in prices for word in price.assumptions)),
    )


def own_error(price: RoundPrice, shared_error: float) -> Quantity:
    """Relative half width of a round's time without the error that all times of a device share.

    Passes of one model err together, and so do ops of one name; these and those independently.
    """
    widths: dict[str, Quantity] = {}
    for part in price.breakdown:
        own = beside(part.seconds.high - part.seconds.median, shared_error * part.seconds.median)
        name = part.model or part.op
        widths[name] = widths.get(name, 0.0) + own
    squares: Quantity = sum(width**2 for width in widths.values())
    error: Quantity = squares**0.5 / maximum(price.seconds.median, 1e-300)
    return error


def _ways(demands: RoundDemands, pricer: RoundPricer) -> list[tuple[Quantity, RoundDemands]]:
    """What a round may come to ask for, with the probability of each; all trips where unknown."""
    ways: Sequence[tuple[Quantity, RoundDemands]] = [(1, demands)]
    if demands.ends:
        shares = shares_of_batch(demands, pricer.batch)
        ways = [(share, one) for share, (_, one) in zip(shares, demands.ends, strict=True)]
    elif demands.matching is not None:
        ways = outcomes(demands, pricer.batch, skips_dead=pricer.device.skips_dead)
    return [(share, one) for share, one in ways if np.any(share)]


def _weighed(weighted: list[tuple[Quantity, Seconds]]) -> Seconds:
    """The mean of times with their probabilities."""
    if len(weighted) == 1:
        return weighted[0][1]
    return total(seconds * share for share, seconds in weighted)


def round_cost(demands: RoundDemands, pricer: RoundPricer, lag: Mapping[str, Quantity]) -> Cost:
    """Resources of all forwards of a round; see `price_round`."""
    cost = Cost()
    for step in demands.steps:
        if isinstance(step, ForwardDemand):
            cost += pricer.cost(step, lag.get(step.cache, 1.0))
    return cost


def _price_steps(
    demands: RoundDemands, pricer: RoundPricer, lag: Mapping[str, Quantity]
) -> list[PricedStep] | Unpriced:
    priced: list[PricedStep] = []
    for step in demands.steps:
        try:
            if isinstance(step, OpDemand):
                seconds = pricer.op(step)
            else:
                seconds = pricer.forward(step, lag.get(step.cache, 1.0))
        except UnpricedError as error:
            return Unpriced(print_op(step.op).splitlines()[0], str(error))
        priced.append((step, _as_entered(demands, step, seconds, pricer.batch)))
    try:
        pricer.glue()
    except UnpricedError as error:
        return Unpriced("", str(error))
    return priced


def _as_entered(
    demands: RoundDemands, step: ForwardDemand | OpDemand, seconds: Seconds, batch: Quantity
) -> Seconds:
    """Of a conditional step the mean time: it runs where some request of the batch enters."""
    if not step.conditional:
        return seconds
    if step.region is None or not demands.entered:
        return replace(seconds, low=seconds.low * 0.0)
    share = demands.entered[step.region]
    low, mean, high = (1.0 - (1.0 - x) ** batch for x in (share.low, share.mean, share.high))
    return Seconds(seconds.median * mean, seconds.low * low, seconds.high * high)


def _priced_op(step: ForwardDemand | OpDemand, seconds: Seconds, share: Quantity) -> PricedOp:
    """What a step adds to a round in which it runs with probability `share`."""
    if not (isinstance(share, int) and share == 1):
        seconds = seconds * share
    if isinstance(step, OpDemand):
        return PricedOp(step.name, None, step.width, share, seconds)
    layers = ",".join(f"{span[0]}:{span[1]}" for span in step.spans if span is not None)
    without = f"without_{step.skips.short}" if step.skips else ""
    name = ":".join(part for part in ("forward", layers, without) if part)
    return PricedOp(name, step.model, step.width, share, seconds)


def _wall_clock(priced: list[PricedStep], pricer: RoundPricer) -> Seconds:
    """Glue and ops one after another, lanes side by side."""
    lanes: dict[str | None, Seconds] = {None: pricer.glue()}
    for step, seconds in priced:
        lanes[step.lane] = lanes.get(step.lane, NO_TIME) + seconds
    alone = lanes.pop(None)
    if not lanes:
        return alone
    return alone + side_by_side(lanes.values(), pricer.device.lane_overlap)


def _merged(parts: Sequence[tuple[str | None, PricedOp]]) -> tuple[PricedOp, ...]:
    """Executions of the same op, model and width in one lane become one entry."""
    merged: dict[tuple[str | None, str, str | None, int], PricedOp] = {}
    for lane, part in parts:
        key = lane, part.op, part.model, part.width
        known = merged.get(key)
        if known is not None:
            times, seconds = known.times + part.times, known.seconds + part.seconds
            part = replace(part, times=times, seconds=seconds)
        merged[key] = part
    return tuple(merged.values())


def _assumptions(demands: RoundDemands, pricer: RoundPricer) -> tuple[str, ...]:
    hidden = pricer.device.lane_overlap
    words = (
        (
            "conditional ops run for some request of the batch",
            _any_conditional(demands) and not (demands.entered or demands.matching),
        ),
        (
            f"of lanes side by side the longest hides {hidden:.0%} of the others",
            any(step.lane is not None for step in demands.steps),
        ),
        (
            "loops that may stop early run all their trips",
            demands.early_stops and not demands.ends,
        ),
    )
    return tuple(word for word, holds in words if holds)


def _any_conditional(demands: RoundDemands) -> bool:
    return any(step.conditional for step in demands.steps)
