"""Threads `fork`: where a text has a token, another begins that goes on from there beside it.

APAR (Liu et al. 2024, arXiv 2401.06761): a target that was tuned for it emits a fork token where a
part of its answer can be written apart; a thread begins with the text up to there and a child
token, and writes that part, while the first one goes on with what comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specplan.runtime.threads.thread import Branches, Thread

MAIN = "main"


@dataclass(frozen=True)
class Forks:
    """A thread per fork token of any thread.

    Attributes:
        fork: the token at which a text forks.
        child: the token with which the other text begins.
    """

    fork: int
    child: int

    def begin(self, threads: Sequence[Thread]) -> Sequence[Thread]:
        """The request's own text, and one for each fork token so far."""
        if not threads:
            return [Thread(name=MAIN)]
        return [child for one in threads for child in self._children(one)]

    def _children(self, thread: Thread) -> Iterator[Thread]:
        assert isinstance(thread.after, tuple), "forks are given as tokens"
        for place, token in enumerate(thread.tokens):
            if token == self.fork:
                before = (*thread.after, *thread.tokens[: place + 1], self.child)
                yield Thread(name=f"{thread.name}.{place}", after=before)

    def join(self, threads: Sequence[Thread]) -> str:
        """Each child's text after that of the thread that it left, in the order of the forks."""
        by_name = {one.name: one for one in threads}

        def joined(thread: Thread) -> str:
            places = (place for place, token in enumerate(thread.tokens) if token == self.fork)
            children = [by_name[f"{thread.name}.{place}"] for place in places]
            return "\n".join([thread.text, *map(joined, children)])

        return joined(by_name[MAIN])


def branches(fork: int, child: int) -> Branches:
    """Threads by two tokens of the target."""
    return Forks(fork, child)
