"""Forecast of a run of a given number of requests: wider than the interval of the mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specplan.cost_models.cost import Quantity, maximum
from specplan.cost_models.intervals import Interval, Seconds


@dataclass(frozen=True, slots=True)
class Forecast:
    """The parts of an estimate that the speed of a run is made of.

    Attributes:
        batch: requests that run together.
        output_tokens: of each request.
        prefill: time of the prompts of a batch.
        seconds_per_round: at the mean context of a request.
        rounds: until the slowest request of a batch is done, in the mean.
        prompts: how many prompts `rounds` was measured on; 0 if unknown.
    """

    batch: int
    output_tokens: int
    prefill: Seconds
    seconds_per_round: Seconds
    rounds: Interval
    prompts: int

    @classmethod
    def from_dict(cls, estimate: Mapping[str, Any]) -> Forecast:
        """Read back from an estimate in JSON."""
        return cls(
            batch=estimate["batch"],
            output_tokens=estimate["output_tokens"],
            prefill=Seconds(**estimate["prefill"]),
            seconds_per_round=Seconds(**estimate["seconds_per_round"]),
            rounds=Interval(**estimate["rounds"]),
            prompts=estimate["prompts"],
        )

    def tokens_per_second(self, requests: int | None = None) -> Interval:
        """Output tokens over all seconds, prompts included.

        Args:
            requests: of the run; None for the mean over many.
        """
        rounds = self.rounds
        if requests is not None and self.prompts:
            rounds = rounds.predictive(self.prompts, requests)
        seconds = self.prefill + self.seconds_per_round.times(rounds)
        return rate(self.batch * self.output_tokens, seconds)


def rate(tokens: Quantity, seconds: Seconds) -> Interval:
    """Tokens per second; a time without lower bound is taken to be at least 1 % of its median."""
    least = maximum(seconds.low, 0.01 * seconds.median)
    return Interval(tokens / seconds.median, tokens / seconds.high, tokens / least)
