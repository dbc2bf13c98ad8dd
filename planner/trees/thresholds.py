"""The threshold of a policy, derived from what a draft forward costs and a token is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specplan.planner.trees.drafted import Children, Policy, PolicyValue, policy_value
from specplan.planner.trees.round_times import RoundTimes

SAME = 1e-12
"""Seconds per token that differ by no larger a share are equal but for rounding."""

LOOKS_BACK = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0)
"""Multiples of a threshold for rules that judge the next step by the last."""


def draft_threshold(draft_seconds: float, seconds_per_token: float) -> float:
    """delta* = t_d / lambda = mu S: accepted tokens that a draft forward must at least add.

    OPT-Tree (arXiv 2406.17276) gives mu = t_d / t_plain, the share of a plain step, as the least
    useful threshold; a round's time is worth S times as many tokens, S the speedup.

    Args:
        draft_seconds: t_d, of one draft forward.
        seconds_per_token: lambda, of the whole policy.
    """
    return draft_seconds / seconds_per_token


@dataclass(frozen=True)
class Tuned:
    """A policy with its threshold, and its worth.

    Attributes:
        policy: the best one found; None where plain decoding is faster than all that were tried.
        threshold: of the policy.
        value: of the policy, or of plain decoding.
    """

    policy: Policy | None
    threshold: float
    value: PolicyValue


def tuned_threshold(
    policy_at: Callable[[float], Policy],
    laws: Sequence[Children],
    times: RoundTimes,
    seconds: float,
    multiples: Sequence[float] = (1.0,),
    turns: int = 50,
) -> Tuned:
    """The threshold that its own seconds per token call for, found by repetition.

    Each turn takes `seconds` / lambda with the lambda of the best policy so far, from plain
    decoding on (Dinkelbach 1967), and ends when nothing is gained.

    Args:
        policy_at: the policy of a threshold.
        laws: equally likely contexts.
        times: of the rounds.
        seconds: what the step that the threshold decides on takes: for a layer, a draft forward.
        multiples: of the threshold, tried each turn. A rule that judges the next step by what the
            last one gained goes one step too far, and does better with more than 1 (`LOOKS_BACK`);
            a rule that knows what the next step gains is best with 1.
        turns: most turns.
    """
    best = Tuned(None, draft_threshold(seconds, times.plain), PolicyValue(1.0, times.plain))
    for _ in range(turns):
        token = best.value.seconds_per_token
        tried = [
            Tuned(policy, threshold, policy_value(policy, laws, times))
            for threshold in (draft_threshold(seconds, token) * more for more in multiples)
            for policy in (policy_at(threshold),)
        ]
        found = min(tried, key=lambda some: some.value.seconds_per_token)
        gained = 1.0 - found.value.seconds_per_token / token
        if gained < -SAME or (best.policy is None and gained <= 0.0):
            break
        best = found
        if gained <= SAME:
            break
    return best
