"""The interface of sources: they are taught tokens, and look tokens up.

A source answers only from what it was taught: it calls no model, and its declaration bounds its
memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from specplan.ir.plan import SourceState

if TYPE_CHECKING:
    from specplan.runtime.requests import Request

Tokens = NDArray[np.int64]
Flags = NDArray[np.bool_]
NO_TOKEN = -1
ROOT = -1


@dataclass(frozen=True)
class Wanted:
    """Limits of one lookup.

    Attributes:
        shortest: fewest tokens to match at the end of a text; 0, of the request's own text alone,
            for its beginning where nothing matches.
        longest: most tokens to match; longer matches are preferred.
        children: continuations of a text, and children of any node of a merged tree, at most.
        length: tokens of a continuation.
        nodes: None for continuations side by side, which differ in their first token; else they
            are merged at equal beginnings, with at most this many nodes.
    """

    shortest: int = 1
    longest: int = 1
    children: int = 1
    length: int = 1
    nodes: int | None = None

    @property
    def size(self) -> int:
        """Slots for nodes, N."""
        separate = self.children * self.length
        return separate if self.nodes is None else min(self.nodes, separate)


@dataclass(frozen=True)
class SourceDrafts:
    """Draft tokens for each of R texts: a tree with room for N nodes.

    Attributes:
        tokens: int64 `[R, N]`, 0 where a slot is empty.
        parents: int64 `[R, N]`, -1 for the text's end; parents stand before their children.
            Continuations side by side lie one after another, `length` slots each.
        live: bool `[R, N]`, slots with a node; in a merged tree they come first, in order of
            frequency.
    """

    tokens: Tokens
    parents: Tokens
    live: Flags

    @classmethod
    def nothing(cls, texts: int, wanted: Wanted) -> SourceDrafts:
        """Empty trees."""
        shape = (texts, wanted.size)
        parents = np.full(shape, ROOT, dtype=np.int64)
        if wanted.nodes is None:
            parents[:] = np.arange(-1, wanted.size - 1)
            parents[:, :: wanted.length] = ROOT
        return cls(np.zeros(shape, dtype=np.int64), parents, np.zeros(shape, dtype=np.bool_))

    @classmethod
    def stacked(cls, parts: list[SourceDrafts]) -> SourceDrafts:
        """The trees of all parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.parents for part in parts]),
            np.concatenate([part.live for part in parts]),
        )

    def put(self, row: int, slot: int, token: int, parent: int) -> None:
        """Write one node."""
        self.tokens[row, slot], self.parents[row, slot] = token, parent
        self.live[row, slot] = True


class Source(ABC):
    """A source of draft tokens; one state, of one request or of many.

    Attributes:
        learns: what it is taught: "logits", the "text", or "runs" of drafted tokens.
        merges: it can merge continuations into one tree.
        one_text: a state has one text.
        width: likeliest tokens that it learns of a row of logits, its `row_width`.
    """

    learns: ClassVar[tuple[str, ...]] = ()
    merges: ClassVar[bool] = False
    one_text: ClassVar[bool] = False
    width = 0

    def __init__(self) -> None:
        self._begun = 0
        self._known: dict[int, int] = {}

    @classmethod
    def declared(cls, state: SourceState, sizes: Mapping[str, int], vocabulary: int) -> Source:
        """A source as a plan declares it, taught nothing yet.

        Args:
            state: its declaration.
            sizes: every parameter of its entry.
            vocabulary: tokens of the target.
        """
        return cls(**sizes)

    @classmethod
    def row_width(cls, sizes: Mapping[str, int]) -> int:
        """Likeliest tokens that a source of these sizes learns of a row."""
        return 0

    def of_request(self, request: Request) -> Source:
        """The source as one request uses it; itself, where requests do not matter."""
        return self

    @property
    @abstractmethod
    def most_bytes(self) -> float:
        """Upper bound of its memory, in bytes."""

    @abstractmethod
    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """Draft tokens after each text.

        Args:
            texts: int64 `[R, S]`, padded at the end; at least their last `wanted.longest` tokens.
            lengths: int64 `[R]`.
            wanted: limits.
        """

    def begin(self, prompt: int) -> int:
        """A key for a text that begins with a prompt of this many tokens."""
        self._begun += 1
        self._known[self._begun] = 0
        return self._begun

    def learn_text(self, key: int, text: Tokens, last: int) -> None:
        """Learn the part of a text that is new since the last call.

        Args:
            key: from `begin`.
            text: int64 `[n]`, all of it; it only grows at its end.
            last: longest run of tokens to learn, its continuation included.
        """
        raise NotImplementedError(f"{type(self).__name__} learns no text")

    def learn_runs(self, runs: Sequence[Tokens]) -> None:
        """Learn runs of tokens that stand in no text; later ones count for more.

        Args:
            runs: int64 `[n]` each.
        """
        raise NotImplementedError(f"{type(self).__name__} learns no runs")

    def learn_rows(self, tokens: Tokens, best: Tokens) -> None:
        """Learn a model's likeliest tokens after some tokens; of equal ones the last counts.

        Args:
            tokens: int64 `[M]`.
            best: int64 `[M, k]`, the likeliest tokens after each, likeliest first.
        """
        raise NotImplementedError(f"{type(self).__name__} learns no rows")

    def close(self, key: int) -> None:
        """The text of this key is complete."""
        self._known.pop(key, None)

    def _grown(self, key: int, text: Tokens) -> int:
        """Tokens of a text that were known before; all of them are now."""
        start = self._known.get(key, 0)
        self._known[key] = len(text)
        return start
