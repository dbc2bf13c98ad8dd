"""Source `ngram`: what followed the last tokens most often in the texts that it was taught.

ANPD (Ou et al. 2024, arXiv 2404.08698): counts of n-grams that grow with the text; a draft is
grown token by token, each after the longest known run of tokens before it, down to one token.
"""

from __future__ import annotations

from typing import ClassVar

from specplan.runtime.sources.source import Source, SourceDrafts, Tokens, Wanted

_MOST_SUCCESSORS = 8
"""Most successors stored after one run; rarer ones give way."""
_ENTRY_BYTES = 900
"""Of CPython: a tuple of a few tokens, a dictionary with eight successors, and their places."""


class NgramTable(Source):
    """Successors and their counts after runs of 1 to `order` - 1 tokens.

    Attributes:
        order: longest n-gram.
        capacity: runs kept; those that were not seen for longest are forgotten.
    """

    learns: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, order: int, capacity: int) -> None:
        super().__init__()
        self.order, self.capacity = order, capacity
        self._after: dict[tuple[int, ...], dict[int, int]] = {}

    @property
    def most_bytes(self) -> float:
        """All runs with all successors."""
        return float(self.capacity * _ENTRY_BYTES)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """The commonest successors, each grown on token by token."""
        drafts = SourceDrafts.nothing(len(texts), wanted)
        if wanted.nodes is not None:
            raise NotImplementedError("ngram gives continuations side by side")
        reach = self._reach(wanted)
        for row, length in enumerate(lengths.tolist()):
            before = texts[row, max(0, length - reach) : length].tolist()
            for child, first in enumerate(self._successors(before, wanted)[: wanted.children]):
                slot, token, run = child * wanted.length, first, before
                for step in range(wanted.length):
                    drafts.put(row, slot + step, token, slot + step - 1 if step else -1)
                    run = [*run, token][-reach:]
                    following = self._successors(run, wanted)
                    if not following:
                        break
                    token = following[0]
        return drafts

    def learn_text(self, key: int, text: Tokens, last: int) -> None:
        """Count the n-grams that end in new tokens."""
        start = self._grown(key, text)
        longest = min(self.order, last)
        new = text[max(0, start - longest + 1) :].tolist()
        for place in range(start - (len(text) - len(new)), len(new)):
            for order in range(2, min(longest, place + 1) + 1):
                self._count(tuple(new[place - order + 1 : place]), new[place])
        while len(self._after) > self.capacity:
            self._after.pop(next(iter(self._after)))

    def _count(self, run: tuple[int, ...], token: int) -> None:
        """One more of an n-gram; its run becomes the newest."""
        counts = self._after.pop(run, {})
        seen = counts.pop(token, 0) + 1  # the newest of equal counts stands last
        if len(counts) >= _MOST_SUCCESSORS:
            counts.pop(min(counts, key=lambda other: counts[other]))
        counts[token] = seen
        self._after[run] = counts

    def _successors(self, before: list[int], wanted: Wanted) -> list[int]:
        """Successors of the longest known run, commonest first, the newest first among equals."""
        for order in range(min(self._reach(wanted), len(before)), wanted.shortest - 1, -1):
            counts = self._after.get(tuple(before[-order:]))
            if counts:
                ranked = sorted(reversed(counts.items()), key=lambda item: -item[1])
                return [token for token, _ in ranked]
        return []

    def _reach(self, wanted: Wanted) -> int:
        return min(wanted.longest, self.order - 1)


SOURCE = NgramTable
