"""How fast a plan decodes, at one batch and context or on a whole grid of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from specplan.cost_models.acceptance.evidence.base import Evidence, read_drafting
from specplan.cost_models.intervals import Interval, Seconds
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import Unpriced, round_seconds
from specplan.ir.plan import Plan, Round


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a plan decodes, without prefill: at one batch and context, or on a grid of them.

    Attributes:
        seconds_per_round: wall-clock time of a round.
        tokens_per_round: emitted by one request, the bonus included.
        seconds_per_token: of one request.
    """

    seconds_per_round: Seconds
    tokens_per_round: Interval
    seconds_per_token: Seconds


def price_speed(
    plan: Plan, item: Round, pricer: RoundPricer, evidence: Evidence | None
) -> Speed | Unpriced:
    """How fast one round of a plan decodes on the pricer's grid of batch sizes and contexts.

    Args:
        plan: a verified plan.
        item: one of its rounds, taken to run throughout.
        pricer: its batch and context may be arrays, e.g. `[b, 1]` and `[1, c]`.
        evidence: of who drafts; None for plans that draft nothing.
    """
    drafting = read_drafting(plan, item, evidence)
    if isinstance(drafting, Unpriced):
        return drafting
    seconds = round_seconds(drafting.demands, pricer, drafting.lag(pricer.batch))
    if isinstance(seconds, Unpriced):
        return seconds
    tokens = drafting.tokens_per_round
    return Speed(seconds, tokens, seconds.times(tokens.inverse))
