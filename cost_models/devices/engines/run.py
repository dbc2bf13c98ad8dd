"""A run of an engine under a steady load, in the words of the cost model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServedRun:
    """What one run of an engine says, means over its requests.

    Attributes:
        requests: that were finished.
        in_flight: requests that ran at once.
        prompt_tokens: of a request.
        output_tokens: of a request.
        request_seconds: of a request, its prompt included, its wait in a queue left out where the
            engine tells it.
        error: relative half width of the 90 % interval of `request_seconds`; None where the run
            does not tell how its requests differ.
        tokens_per_round: emitted per request and round, the bonus included; None where it does not
            say.
        source: what was read, in words.
    """

    requests: int
    in_flight: float
    prompt_tokens: float
    output_tokens: float
    request_seconds: float
    error: float | None
    tokens_per_round: float | None
    source: str

    @property
    def seconds_per_token(self) -> float:
        """Seconds of a request per output token."""
        return self.request_seconds / self.output_tokens
