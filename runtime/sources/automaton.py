"""Source `automaton`: what followed the longest end of the text that occurred before.

SAM decoding (Hu et al. 2024, arXiv 2411.10666, section 3): a suffix automaton of the request's own
text grows by one token in constant time, amortised, and finds the longest match however long the
text is. Built as by Blumer et al. 1985. A continuation is copied from the first occurrence.
"""

from __future__ import annotations

from typing import ClassVar

from specplan.ir.errors import UsageError
from specplan.runtime.sources.source import Source, SourceDrafts, Tokens, Wanted

_TOKEN_BYTES = 900
"""Of CPython: at most two states a token, each a dictionary with a transition or two, and three
numbers."""


class Automaton(Source):
    """The substrings of one text, by where they end.

    Attributes:
        capacity: tokens of the text kept; of a longer one at least the newest half of them.
    """

    learns: ClassVar[tuple[str, ...]] = ("text",)
    one_text: ClassVar[bool] = True

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._key: int | None = None
        self._forget()

    def _forget(self) -> None:
        """No text: the state 0 stands for the empty run."""
        self._text: list[int] = []
        self._last = 0
        self._next: list[dict[int, int]] = [{}]
        self._link, self._length, self._end = [-1], [0], [-1]

    @property
    def most_bytes(self) -> float:
        """All states and transitions."""
        return float(self.capacity * _TOKEN_BYTES)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """The continuation of the first occurrence of each text's end; it goes on with itself."""
        drafts = SourceDrafts.nothing(len(texts), wanted)
        if wanted.children != 1 or wanted.nodes is not None:
            raise NotImplementedError("automaton gives one continuation")
        for row, length in enumerate(lengths.tolist()):
            suffix = texts[row, max(0, length - wanted.longest) : length].tolist()
            state, matched = self._match(suffix)
            if matched < wanted.shortest:
                continue
            end = self._end[state] + 1
            period = len(self._text) - end
            for step in range(wanted.length):
                drafts.put(row, step, self._text[end + step % period], step - 1)
        return drafts

    def learn_text(self, key: int, text: Tokens, last: int) -> None:
        """Grow by what is new."""
        if self._key not in (None, key):
            raise UsageError("an automaton holds one text", remedy="Declare it with scope=request.")
        self._key = key
        start = self._grown(key, text)
        for token in text[start:].tolist():
            self._extend(token)
        if len(self._text) > self.capacity:
            latest = self._text[-max(1, self.capacity // 2) :]
            self._forget()
            for token in latest:
                self._extend(token)

    def _match(self, suffix: list[int]) -> tuple[int, int]:
        """State and length of the longest end of `suffix` that occurs and goes on."""
        state = matched = 0
        for token in suffix:
            while state and token not in self._next[state]:
                state = self._link[state]
                matched = self._length[state]
            if token in self._next[state]:
                state, matched = self._next[state][token], matched + 1
        while state and self._end[state] == len(self._text) - 1:
            state = self._link[state]
            matched = self._length[state]
        return state, matched

    def _extend(self, token: int) -> None:
        """One token more (Blumer et al. 1985): a state for all of it, perhaps one split off."""
        self._text.append(token)
        new = self._state({}, self._length[self._last] + 1, len(self._text) - 1)
        at = self._last
        while at >= 0 and token not in self._next[at]:
            self._next[at][token] = new
            at = self._link[at]
        self._link[new] = 0 if at < 0 else self._shared(at, token)
        self._last = new

    def _shared(self, at: int, token: int) -> int:
        """The state of the longest run that ends here and ended earlier, split off if need be."""
        there = self._next[at][token]
        if self._length[there] == self._length[at] + 1:
            return there
        split = self._state(dict(self._next[there]), self._length[at] + 1, self._end[there])
        self._link[split] = self._link[there]
        self._link[there] = split
        while at >= 0 and self._next[at].get(token) == there:
            self._next[at][token] = split
            at = self._link[at]
        return split

    def _state(self, following: dict[int, int], length: int, end: int) -> int:
        self._next.append(following)
        self._link.append(-1)
        self._length.append(length)
        self._end.append(end)
        return len(self._next) - 1


SOURCE = Automaton
