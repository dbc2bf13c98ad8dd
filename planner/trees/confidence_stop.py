"""Chains that end where going on is not worth it, by the confidence in the drafted tokens.

Sources: SpecDec++ (arXiv 2405.19715) stops by the probability that something was rejected; DISCO
(arXiv 2405.04304), Kangaroo (arXiv 2404.18911) and assisted generation stop by the last token
alone. All see probabilities of acceptance, of a trained head or the draft model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specplan.planner.trees.drafted import Children, Drafted, PolicyValue
from specplan.planner.trees.round_times import RoundTimes
from specplan.planner.trees.shape import chain
from specplan.planner.trees.thresholds import tuned_threshold


@dataclass(frozen=True)
class ConfidenceStop:
    """Draft a chain until the confidence falls below a threshold.

    Attributes:
        threshold: least confidence, in [0, 1].
        most: most drafted tokens.
        least: fewest drafted tokens.
        of: whose confidence: that of the `token` alone, or of the whole `path` to it, the product.
        beforehand: whether a token's confidence is known before it is drafted; else the token
            that falls below the threshold has been drafted, and is verified too.
    """

    threshold: float
    most: int
    least: int = 0
    of: Literal["token", "path"] = "path"
    beforehand: bool = False

    def __call__(self, law: Children) -> Drafted:
        """What is drafted in a context: the first child each time."""
        length, path = 0, 1.0
        while length < self.most:
            offered = law((0,) * length)
            token = offered[0] if len(offered) else 0.0
            path *= token
            low = (path if self.of == "path" else token) < self.threshold
            if low and self.beforehand and length >= self.least:
                break
            length += 1
            if low and length >= self.least:
                break
        return Drafted(chain(length), (1,) * length, length)


@dataclass(frozen=True)
class OptimalStop:
    """The best rule that stops a chain, and its worth.

    Attributes:
        policy: stops where P(all drafted tokens are accepted) falls below the threshold.
        value: over the contexts.
    """

    policy: ConfidenceStop
    value: PolicyValue

    @property
    def rejection(self) -> float:
        """P(something was rejected) from which it stops: 1 - t_d / lambda."""
        return 1.0 - self.policy.threshold


def optimal_stop(confidences: Sequence[Sequence[float]], times: RoundTimes) -> OptimalStop:
    """The rule with the fewest seconds per token, in equally likely contexts.

    One more token is worth drafting iff P(it and all before are accepted) * lambda > its own
    seconds, lambda being the seconds per token on the whole: the probability falls along a chain
    and the seconds do not, so that the first time going on is not worth it is the time to stop (the
    monotone case of optimal stopping), and lambda is found by repetition (Dinkelbach 1967).
    The threshold is the same everywhere if verifying one more token always takes the same time,
    which is taken from the mean over the sizes that are known.

    Args:
        confidences: P(accepted | all before were) of the tokens of each context's chain; known
            before a token is drafted.
        times: of the rounds; its sizes limit the length.
    """
    most = min(max(map(len, confidences), default=0), len(times.verify) - 1)
    token = times.draft[0] + (times.verify[most] - times.verify[min(1, most)]) / max(most - 1, 1)
    laws = [_chain_law(row) for row in confidences]
    tuned = tuned_threshold(
        lambda threshold: ConfidenceStop(threshold, most, of="path", beforehand=True),
        laws,
        times,
        seconds=float(token),
    )
    return OptimalStop(ConfidenceStop(tuned.threshold, most, beforehand=True), tuned.value)


def _chain_law(confidences: Sequence[float]) -> Children:
    return lambda path: confidences[len(path) : len(path) + 1]
