"""Acceptance of chains that a draft model and a source draft in turns.

Along a target's own text it is measured at every position whether the draft model's token is
accepted there, and how many tokens of the source's continuation the text goes on with. Both hold
for every chain that begins there, however the two take turns: a token of either is accepted only
where all before it were, and then stands at a position of the text.

A source's tokens may also be judged by the draft model before the target sees them (staged
speculation, Spector and Re 2023, arXiv 2308.04623): what the model accepts of them is what it would
have drafted itself. So its tokens are accepted by the target where the model's are, and where the
text has them the model keeps the source's tokens exactly as long as they are the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Lengths = tuple[tuple[int, ...], ...]
Drafter = Literal["model", "source", "judged"]


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of a chain.

    Attributes:
        by: the `model`, the `source`, or the source `judged` by the model, which adds a token of
            its own where it rejects one or has none left to judge.
        tokens: drafted; at most so many of a source.
    """

    by: Drafter
    tokens: int

    @property
    def most(self) -> int:
        """Tokens of the chain that it gives at most."""
        return self.tokens + (self.by == "judged")


@dataclass(frozen=True)
class Turns:
    """What of the text a model and a source would have drafted.

    Attributes:
        longest: tokens of the source's continuations that were compared.
        rows: per prompt, for every position of the target's continuation: 1 where the model's token
            is accepted, else 0; and the tokens of the source that the text goes on with.
    """

    longest: int
    rows: tuple[tuple[tuple[int, int], ...], ...]

    def as_data(self) -> dict[str, Any]:
        """Ready for JSON: `longest`, and `rows` with both numbers of each position in one text."""
        rows = [[f"{model} {copied}" for model, copied in row] for row in self.rows]
        return {"longest": self.longest, "rows": rows}

    @classmethod
    def from_data(cls, longest: int, rows: Sequence[Sequence[str]]) -> Turns:
        """The inverse of `as_data`.

        Raises:
            ValueError: a position holds something else than two whole numbers.
        """
        read = []
        for row in rows:
            pairs = [tuple(map(int, str(text).split())) for text in row]
            read.append(tuple((model, copied) for model, copied in pairs))
        return cls(longest, tuple(read))

    def problem(self) -> str | None:
        """What is wrong with it; None when nothing is."""
        if isinstance(self.longest, bool) or not isinstance(self.longest, int) or self.longest < 1:
            return f"continuations of {self.longest!r} tokens"
        if not any(self.rows):
            return "holds no measurement"
        for row in self.rows:
            for model, copied in row:
                if model not in (0, 1) or not 0 <= copied <= self.longest:
                    return f"{[model, copied]} is out of range"
        return None

    def problem_of(self, legs: Sequence[Leg]) -> str | None:
        """Why it says nothing of a chain; None where it does."""
        most = max((leg.tokens for leg in legs if leg.by != "model"), default=0)
        if most > self.longest:
            return f"{self.longest} tokens of the source were compared, and {most} are drafted"
        return None

    def lengths(self, legs: Sequence[Leg]) -> Lengths:
        """Per prompt and position, the tokens accepted of a chain drafted in turns from there."""
        return tuple(tuple(_accepted(*_columns(row), legs).tolist()) for row in self._kept)

    @cached_property
    def whole(self) -> Lengths:
        """Tokens accepted of all that the model would draft alone."""
        return tuple(tuple(_runs(_columns(row)[0]).tolist()) for row in self._kept)

    @cached_property
    def _kept(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Prompts with a position."""
        return tuple(row for row in self.rows if row)


def _columns(row: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    found = np.array(row, dtype=np.int64)
    return found[:, 0], found[:, 1]


def _runs(agrees: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many tokens of the model are accepted in a row from each position on."""
    found, run = np.zeros_like(agrees), 0
    for position in range(len(agrees) - 1, -1, -1):
        run = run + 1 if agrees[position] else 0
        found[position] = run
    return found


def _accepted(
    agrees: NDArray[np.int64], copied: NDArray[np.int64], legs: Sequence[Leg]
) -> NDArray[np.int64]:
    """Tokens accepted from every position; a chain ends with the text at the latest."""
    size = len(agrees)
    runs = np.append(_runs(agrees), 0)
    copies = np.append(copied, 0)
    start = np.arange(size)
    here, going = start.copy(), np.ones(size, dtype=bool)
    for leg in legs:
        wanted = np.full(size, leg.tokens)
        if leg.by == "judged":
            wanted = np.minimum(copies[here], leg.tokens) + 1
        given = copies[here] if leg.by == "source" else runs[here]
        kept = np.where(going, np.minimum(given, wanted), 0)
        here = np.minimum(here + kept, size)
        going &= kept == wanted
    accepted: NDArray[np.int64] = here - start
    return accepted
