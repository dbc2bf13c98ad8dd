"""Estimates corrected by measurements of the same plans, or of similar ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.cost import Quantity
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.forecast import rate
from specplan.cost_models.intervals import Interval, Seconds

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correction:
    """What measurements make of the estimate of one plan; every field is an array [cells].

    Attributes:
        seconds: factor on the seconds of a request.
        tokens: factor on the tokens of a round.
        error: relative half width of the 90 % interval of the corrected seconds, without what all
            plans measured there have in common; read only where the plan was measured.
        shared: the same of what they have in common, without the drift of the machine.
        measured: whether this very plan was measured there. Elsewhere the factors are those of
            plans like it, and the estimate keeps the relative width of its intervals.
    """

    seconds: Floats
    tokens: Floats
    error: Floats
    shared: Floats
    measured: NDArray[np.bool_]


def correct(estimate: Estimate, by: Correction) -> Estimate:
    """The estimate with every time and count multiplied; times that were measured are as sure.

    A round takes `seconds` times `tokens` as long, since `tokens` times as many tokens come of it.
    Where the plan was measured, what is open is all in the times: its counts were counted.
    """
    shared: Quantity = np.hypot(np.where(by.measured, by.shared, 0.0), estimate.shared_error)
    wide = 1.0 + np.hypot(by.error, shared)

    def time(of: Seconds, factor: Floats) -> Seconds:
        median = of.median * factor
        low = np.where(by.measured, median / wide, of.low * factor)
        high = np.where(by.measured, median * wide, of.high * factor)
        outside = np.logical_and(of.extrapolated, ~by.measured)
        return Seconds(median, low, high, outside)  # type: ignore[arg-type]

    def count(of: Interval, factor: Floats) -> Interval:
        mean: Quantity = of.mean * factor
        low: Quantity = np.where(by.measured, mean, of.low * factor)
        high: Quantity = np.where(by.measured, mean, of.high * factor)
        return Interval(mean, low, high)

    of_round = by.seconds * by.tokens
    per_token = time(estimate.seconds_per_token, by.seconds)
    request = time(estimate.request_seconds, by.seconds)
    return replace(
        estimate,
        seconds_per_round=time(estimate.seconds_per_round, of_round),
        tokens_per_round=count(estimate.tokens_per_round, by.tokens),
        seconds_per_token=per_token,
        decode_tokens_per_second=rate(estimate.batch, per_token),
        ttft=time(estimate.ttft, by.seconds),
        prefill=time(estimate.prefill, by.seconds),
        rounds=count(estimate.rounds, 1.0 / by.tokens),
        decode_seconds=time(estimate.decode_seconds, by.seconds),
        request_seconds=request,
        tokens_per_second=rate(estimate.batch * estimate.output_tokens, request),
        breakdown=tuple(
            replace(part, seconds=time(part.seconds, of_round)) for part in estimate.breakdown
        ),
        extrapolated=request.extrapolated,
        shared_error=shared,
        own_error=np.where(by.measured, by.error, estimate.own_error),
        measured=by.measured,
    )
