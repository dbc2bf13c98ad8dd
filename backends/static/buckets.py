"""Shapes that programs are made for, and how a batch is fitted into one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from specplan.ir.errors import UsageError
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings

SMALLEST_TEXT = 256
"""Capacities are this many tokens, doubled as often as is needed."""
FEWEST_STOPS = 4
"""Room for stop tokens is for this many, doubled as often as is needed."""


@dataclass(frozen=True, order=True)
class Bucket:
    """The shape of a batch.

    Attributes:
        batch: rows; those that no request needs are done from the start.
        text: tokens that each row has room for, speculative ones left out.
        stops: stop tokens that each row has room for.
    """

    batch: int
    text: int
    stops: int = FEWEST_STOPS

    def holds(self, batch: int, text: int, stops: int) -> bool:
        """Whether so many requests of at most so many tokens and stop tokens fit."""
        return batch <= self.batch and text <= self.text and stops <= self.stops

    def stop_rows(self, stops: Sequence[Collection[int]]) -> list[list[int]]:
        """Stop tokens of each request, filled up with -1."""
        return [[*sorted(one), *[-1] * (self.stops - len(one))] for one in stops]

    @property
    def word(self) -> str:
        """For names of files."""
        more = f"-s{self.stops}" if self.stops > FEWEST_STOPS else ""
        return f"b{self.batch}-t{self.text}{more}"


def bucket_for(
    requests: Sequence[Request], capacity: int | None = None, known: Iterable[Bucket] = ()
) -> Bucket:
    """The smallest known bucket that holds a batch; one of its own size when none does.

    Args:
        requests: of the batch.
        capacity: tokens of text per row to make room for, where the requests need less.
        known: buckets.
    """
    batch = len(requests)
    needed = max(len(item.prompt_tokens) + item.max_new_tokens for item in requests)
    text = max(capacity or 0, needed)
    stops = max(len(set(item.stop_tokens)) for item in requests)
    fitting = [bucket for bucket in known if bucket.holds(batch, text, stops)]
    if fitting:
        return min(fitting)
    return Bucket(batch, doubled(SMALLEST_TEXT, text), doubled(FEWEST_STOPS, stops))


def doubled(room: int, needed: int) -> int:
    """Some room, doubled until there is enough."""
    while room < needed:
        room *= 2
    return room


@dataclass(frozen=True)
class Sampling:
    """How the requests of a batch sample, as far as a graph depends on it.

    Attributes:
        greedy: all of them take the first choice.
        truncated: some leave tokens out by top-k or top-p.
    """

    greedy: bool
    truncated: bool

    @classmethod
    def of(cls, settings: SamplingSettings) -> Sampling:
        """What a batch needs."""
        return cls(settings.greedy, settings.truncated and not settings.greedy)

    @classmethod
    def named(cls, word: str) -> Sampling:
        """That of a word.

        Raises:
            UsageError: there is none.
        """
        known = {one.word: one for one in (cls(True, False), cls(False, True), cls(False, False))}
        if word not in known:
            raise UsageError(
                f"no batch samples {word!r}", remedy=f"Batches are {', '.join(known)}."
            )
        return known[word]

    @property
    def word(self) -> str:
        """For names of files."""
        return "greedy" if self.greedy else "truncated" if self.truncated else "sampled"
