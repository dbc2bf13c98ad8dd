"""Source `phrases`: what was last seen to follow a token, as whole runs.

The n-gram pool of lookahead decoding (Fu et al. 2024, arXiv 2402.02057, section 3.2; its released
code, `lade/decoding.py`): n-grams by their first token, of each token the latest. A lookup goes by
the last tokens of a text, one or as many as it asks to match, and what it finds is merged into one
tree or stands side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from specplan.runtime.sources.continuations import continuation_trees
from specplan.runtime.sources.source import NO_TOKEN, Source, SourceDrafts, Tokens, Wanted

_ENTRY_BYTES = 400
"""Of CPython: a dictionary's place and an inner dictionary with one place, for each first token."""
_PHRASE_BYTES, _TOKEN_BYTES = 160, 8
"""A tuple, its place, and what a lookup makes of it; and each of its tokens."""


class Phrases(Source):
    """Runs of tokens by the token before them, the newest ones.

    Attributes:
        order: tokens of a run and the one before it.
        width: runs kept after one token.
        capacity: runs kept in all; those after the token that was taught longest ago give way.
    """

    learns: ClassVar[tuple[str, ...]] = ("text", "runs")
    merges: ClassVar[bool] = True

    def __init__(self, order: int, width: int, capacity: int) -> None:
        super().__init__()
        self.order, self.runs_per_token, self.capacity = order, width, capacity
        self._after: dict[int, dict[tuple[int, ...], None]] = {}
        self._size = 0

    @property
    def most_bytes(self) -> float:
        """All runs, each after a token of its own."""
        phrase = _PHRASE_BYTES + _TOKEN_BYTES * (self.order - 1)
        return float(self.capacity * (_ENTRY_BYTES + phrase))

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """The newest runs after the longest match of each text; among equals the newer first."""
        length = wanted.length
        limit, merged = self.runs_per_token, wanted.nodes is not None
        most = min(limit, wanted.children) if merged else limit
        newer = 1.0 + np.arange(most) / (most * (most + 1.0))  # less than one run in all
        followed: list[tuple[int, ...]] = []
        rows, weights = [], []
        for row, end in enumerate(lengths.tolist()):
            known = self._following(texts[row, :end], wanted)[-most:]
            followed += [(*run[:length], *(NO_TOKEN,) * (length - len(run))) for run in known]
            rows += [row] * len(known)
            weights += newer[most - len(known) :].tolist()
        return continuation_trees(
            np.array(followed, dtype=np.int64).reshape(-1, length),
            np.array(rows, dtype=np.int64),
            len(texts),
            wanted,
            np.array(weights),
        )

    def _following(self, text: Tokens, wanted: Wanted) -> list[tuple[int, ...]]:
        """What followed the longest end of a text that runs begin with, the newest last."""
        for size in range(min(wanted.longest, self.order - 1, len(text)), 0, -1):
            if size < wanted.shortest:
                break
            first, *others = text[len(text) - size :].tolist()
            runs, known = self._after.get(first, ()), tuple(others)
            after = [run[size - 1 :] for run in runs if run[: size - 1] == known]
            if after := [run for run in after if run]:
                return after
        return []

    def learn_text(self, key: int, text: Tokens, last: int) -> None:
        """Learn the runs that end in new tokens."""
        start, size = self._grown(key, text), min(self.order, last)
        for end in range(max(start, size - 1) + 1, len(text) + 1):
            self._learn(text[end - size : end].tolist())

    def learn_runs(self, runs: Sequence[Tokens]) -> None:
        """Learn what follows each token of a run, as far as it is known."""
        for run in runs:
            for start in range(max(len(run) - self.order, 0) + 1):
                self._learn(run[start : start + self.order].tolist())

    def _learn(self, run: list[int]) -> None:
        first, phrase = run[0], tuple(run[1:])
        if not phrase:
            return
        known = self._after.pop(first, {})
        self._size += phrase not in known
        known.pop(phrase, None)
        known[phrase] = None
        if len(known) > self.runs_per_token:
            known.pop(next(iter(known)))
            self._size -= 1
        self._after[first] = known
        while self._size > self.capacity:
            oldest = next(iter(self._after))
            self._after[oldest].pop(next(iter(self._after[oldest])))
            self._size -= 1
            if not self._after[oldest]:
                self._after.pop(oldest)


SOURCE = Phrases
