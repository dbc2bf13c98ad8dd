"""Rounds that a backend ran as one call; see `compiled_form`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one model over as many tokens in a round.

    Attributes:
        model: digest of the model.
        dtype: number format it ran in.
        count: of passes.
        tokens: of all requests together, those that may be pending included.
        single: seconds of a pass over one token of one request, by the interpreter.
    """

    model: str
    dtype: str
    count: int
    tokens: int
    single: float

    def __post_init__(self) -> None:
        _check_numbers(count=self.count, tokens=self.tokens, single=self.single)
        if not isinstance(self.model, str) or not isinstance(self.dtype, str):
            raise TypeError(f"passes of {self.model!r} in {self.dtype!r}")


@dataclass(frozen=True, slots=True)
class CompiledRun:
    """A round of a probe as it ran, and the interpreter's times of its parts.

    Attributes:
        probe: name of the plan.
        form: of its round, as names end by `outcome_words`; empty for the round itself.
        batch: requests.
        context: tokens of text per request.
        version: of what compiled it, where it has one of its own.
        seconds: of the compiled round, the median of turns.
        prompts: seconds until the prompts are read over those of the interpreter's table.
        passes: of each model and number of tokens, by that table.
        others: its seconds of everything else.
        moves: of these, seconds for moving the accepted nodes of trees in caches.
        sources: of these, seconds for lookups, and for what sources learn.
    """

    probe: str
    form: str
    batch: int
    context: int
    version: str
    seconds: float
    prompts: float
    passes: tuple[Passes, ...]
    others: float
    moves: float
    sources: float

    def __post_init__(self) -> None:
        numbers = {"batch": self.batch, "context": self.context, "seconds": self.seconds}
        parts = {"others": self.others, "moves": self.moves or 1, "sources": self.sources or 1}
        _check_numbers(**numbers, prompts=self.prompts, **parts)
        if not self.passes:
            raise ValueError(f"the compiled round of {self.probe} ran no model")

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """From JSON data.

        Raises:
            TypeError: a field is missing or unknown, or of another type.
            KeyError: there are no passes.
            ValueError: a number is not above 0.
        """
        return cls(**{**entry, "passes": tuple(Passes(**one) for one in entry["passes"])})


def _check_numbers(**numbers: Any) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"{name} is {number!r}")
        if not 0.0 < number < math.inf:
            raise ValueError(f"{name} is {number}, not above 0")
