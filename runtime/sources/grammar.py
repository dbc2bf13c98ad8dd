"""Source `grammar`: what a request's grammar forces, and else what followed in its states before.

DOMINO (Beurer-Kellner et al. 2024, arXiv 2403.06988, section 3.6): where the grammar leaves one
token, that token; else the token that stood most often in the same state of the parser. A state is
known by the tokens that it allows and the token before it. Without a grammar every state allows
all, and the source counts which token follows which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from specplan.runtime.sources.source import Source, SourceDrafts, Tokens, Wanted

if TYPE_CHECKING:
    from specplan.runtime.requests import Request

TOKENS = 8
"""Of a state; the rarest makes room for a new one."""
_ENTRY_BYTES = 1200
"""Of CPython at most: a hash, a token, a dictionary of so many tokens, and their places."""
State = tuple[int, int]
"""A hash of the allowed tokens, and the last token."""


class GrammarCounts(Source):
    """Counts of tokens by state, of all requests that share it.

    Attributes:
        capacity: states kept; those that were not seen for longest are forgotten.
    """

    learns: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._after: dict[State, dict[int, int]] = {}

    @property
    def most_bytes(self) -> float:
        """All states."""
        return float(self.capacity * _ENTRY_BYTES)

    def of_request(self, request: Request) -> Source:
        """See `Source.of_request`: the counts, along a request's own grammar."""
        return _Along(self, request)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """See `Source.lookup`; requests look up by themselves."""
        raise NotImplementedError("a grammar is a request's own")

    def count(self, state: State, token: int) -> None:
        """A token stood in a state, which becomes the newest."""
        counts = self._after.pop(state, {})
        if len(counts) == TOKENS and token not in counts:
            del counts[min(counts, key=counts.__getitem__)]
        counts[token] = counts.get(token, 0) + 1
        self._after[state] = counts
        if len(self._after) > self.capacity:
            self._after.pop(next(iter(self._after)))

    def commonest(self, state: State) -> int | None:
        """The token that stood in a state most often, the first among equals."""
        counts = self._after.get(state)
        return None if not counts else max(counts, key=counts.__getitem__)


class _Along(Source):
    """The counts as one request sees them: its parser stands at the end of the learned text."""

    learns: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, counts: GrammarCounts, request: Request) -> None:
        super().__init__()
        self._counts, self._start = counts, len(request.prompt_tokens)
        self._ends = frozenset(request.stop_tokens)
        self._parser = None if request.grammar is None else request.grammar.matcher()

    @property
    def most_bytes(self) -> float:
        """The counts are others' too."""
        return self._counts.most_bytes

    def learn_text(self, key: int, text: Tokens, last: int) -> None:
        """Count the new tokens of the output."""
        known = max(self._grown(key, text), self._start)
        for place in range(known, len(text)):
            token = int(text[place])
            self._counts.count(self._state(int(text[place - 1])), token)
            if self._parser is not None and token not in self._ends:
                self._parser.try_consume_tokens([token])

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """One continuation; of texts that end in drafted tokens, as if it were the learned one."""
        drafts = SourceDrafts.nothing(len(texts), wanted)
        for row, length in enumerate(lengths.tolist()):
            taken = 0
            for slot, token in enumerate(self._drafted(int(texts[row, length - 1]), wanted.length)):
                drafts.put(row, slot, token, slot - 1)
                if self._parser is not None:
                    taken += self._parser.try_consume_tokens([token])
            if self._parser is not None:
                self._parser.rollback(taken)
        return drafts

    def _drafted(self, last: int, most: int) -> Iterator[int]:
        """Tokens one after another, while the caller takes each of them in."""
        drafted = 0
        while drafted < most:
            forced = [] if self._parser is None else self._parser.compute_ff_tokens()
            token = None if forced else self._counts.commonest(self._state(last))
            if token is not None and token not in self._ends:
                forced = [token]
            if not forced:
                return
            for last in forced[: most - drafted]:
                drafted += 1
                yield last

    def _state(self, last: int) -> State:
        allowed = 0 if self._parser is None else hash(self._parser.compute_bitmask())
        return allowed, last


SOURCE = GrammarCounts
