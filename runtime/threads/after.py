"""Threads `after`: a second text goes on where the first one ended with a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specplan.runtime.threads.thread import Branches, Thread


@dataclass(frozen=True)
class After:
    """Two threads, one after the other.

    Attributes:
        stop: the token that ends the first.
    """

    stop: int

    def begin(self, threads: Sequence[Thread]) -> Sequence[Thread]:
        """The first text; at its end the second one, which begins with it."""
        if not threads:
            return [Thread(name="first", stop_tokens=(self.stop,))]
        first = threads[0]
        if not first.ended or first.tokens[-1:] != (self.stop,):
            return []
        return [Thread(name="second", after=first.tokens)]

    def join(self, threads: Sequence[Thread]) -> str:
        """Both texts."""
        return "".join(one.text for one in threads)


def branches(stop: int) -> Branches:
    """Threads by the token that ends the first."""
    return After(stop)
