"""Source `log`: what followed the end of a text wherever it occurs in the texts of the past.

Suffix decoding (Oliaro et al. 2024, arXiv 2411.04975): the longest run of tokens that ends the text
and occurs in the log is looked for, and what followed its occurrences is proposed, the commonest
first and the newest among equals. Texts that are still growing are part of the log. The search is
one pass over the log per lookup: 4 bytes a token are read, and no index is kept.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specplan.runtime.sources.continuations import continuation_trees, cut_at_ends
from specplan.runtime.sources.source import NO_TOKEN, Source, SourceDrafts, Tokens, Wanted

_OCCURRENCES = 64
"""Occurrences that are compared, the newest ones."""
_BYTES = 12
"""Per token: in its text, in the log as it is searched, and what a search makes of it."""


class Log(Source):
    """Texts, the oldest of which give way.

    Attributes:
        capacity: tokens kept.
    """

    learns: ClassVar[tuple[str, ...]] = ("text",)
    merges: ClassVar[bool] = True

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._texts: dict[int, NDArray[np.int32]] = {}
        self._joined: NDArray[np.int32] | None = None

    @property
    def most_bytes(self) -> float:
        """All tokens."""
        return float(self.capacity * _BYTES)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """What followed the newest occurrences of the longest match."""
        log = self._all()
        most = _OCCURRENCES if wanted.nodes is None else wanted.children
        newer = 1.0 + np.arange(most) / (most * (most + 1.0))  # less than one occurrence in all
        followed, rows, weights = [], [], []
        for row, length in enumerate(lengths.tolist()):
            suffix = texts[row, max(0, length - wanted.longest) : length]
            ends = _occurrences(log, suffix, wanted.shortest)[-most:]
            places = ends[:, None] + np.arange(wanted.length)
            followed.append(log[np.minimum(places, len(log) - 1)].astype(np.int64))
            rows.append(np.full(len(ends), row))
            weights.append(newer[most - len(ends) :])
        return continuation_trees(
            cut_at_ends(np.concatenate(followed)),
            np.concatenate(rows),
            len(texts),
            wanted,
            np.concatenate(weights),
        )

    def learn_text(self, key: int, text: Tokens, last: int) -> None:
        """Keep what is new of a text, and of the whole log its newest tokens."""
        start = self._grown(key, text)
        if start == len(text):
            return
        known = self._texts.get(key)
        new = text[start:].astype(np.int32)
        joined = new if known is None else np.concatenate([known, new])
        self._texts[key] = joined[-self.capacity :]
        self._joined = None
        left = sum(map(len, self._texts.values()))
        for other in [*self._texts]:
            if left <= self.capacity:
                break
            if other != key:
                left -= len(self._texts.pop(other))

    def _all(self) -> NDArray[np.int32]:
        """All texts, each with a -1 behind it."""
        if self._joined is None:
            ends = np.array([NO_TOKEN], dtype=np.int32)
            parts = [part for text in self._texts.values() for part in (text, ends)]
            self._joined = np.concatenate([ends, *parts])
        return self._joined


def _occurrences(log: NDArray[np.int32], suffix: Tokens, shortest: int) -> Tokens:
    """Where the longest run that ends `suffix` ends in the log and goes on there, ascending."""
    if not len(suffix):
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(log[:-1] == suffix[-1]) + 1
    ends = ends[log[ends] >= 0]
    longest = 1
    while len(ends) and longest < len(suffix):
        further = ends[ends > longest]
        further = further[log[further - longest - 1] == suffix[-longest - 1]]
        if not len(further):
            break
        ends, longest = further, longest + 1
    return ends if longest >= shortest else ends[:0]


SOURCE = Log
