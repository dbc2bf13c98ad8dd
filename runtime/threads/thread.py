"""One text of a request that branches, and what an entry of the table `threads` gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Thread:
    """One text of a request.

    Attributes:
        name: unlike those of the request's other threads.
        after: what follows the request's prompt in its own, a text or tokens.
        most: tokens at most; None for as many as the request asks for.
        stops: strings that end it.
        stop_tokens: tokens that end it.
        tokens: its tokens so far.
        text: their text so far, without the string that ended it.
        ended: it has come to its end.
    """

    name: str
    after: str | tuple[int, ...] = ()
    most: int | None = None
    stops: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    text: str = ""
    ended: bool = False


class Branches(Protocol):
    """Which threads a request has; pure functions of its texts."""

    def begin(self, threads: Sequence[Thread]) -> Sequence[Thread]:
        """All threads that are to run by now; those whose names there are already are known.

        Args:
            threads: those that have begun, in this order, with what they have said.
        """
        ...

    def join(self, threads: Sequence[Thread]) -> str:
        """The output, from the threads at their ends."""
        ...
