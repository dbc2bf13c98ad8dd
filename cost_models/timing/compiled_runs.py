"""Rounds that a backend ran as one call, beside the interpreter; see `compiled`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Passes:
    """All passes of one model in a round.

    Attributes:
        model: digest of the model.
        dtype: number format it ran in.
        seconds: by the interpreter.
        layers: run in all of them together.
    """

    model: str
    dtype: str
    seconds: float
    layers: float


@dataclass(frozen=True, slots=True)
class CompiledRun:
    """A round of a probe, compiled and interpreted in turns.

    Attributes:
        probe: name of the plan.
        batch: requests.
        ratio: seconds of the compiled round over those of the interpreted one, the median of turns.
        passes: of each model, by the interpreter's table.
        others: seconds of everything but passes, by the same table.
    """

    probe: str
    batch: int
    ratio: float
    passes: tuple[Passes, ...]
    others: float

    def __post_init__(self) -> None:
        if not self.ratio > 0.0 or not self.passes or min(p.layers for p in self.passes) <= 0.0:
            raise ValueError(f"a compiled round of {self.probe} needs passes and a ratio above 0")

    @property
    def interpreted(self) -> float:
        """Seconds of the round by the interpreter's table."""
        return self.others + sum(one.seconds for one in self.passes)

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """From JSON data.

        Raises:
            TypeError: a field is missing or unknown.
            ValueError: a field is out of range.
        """
        return cls(**{**entry, "passes": tuple(Passes(**one) for one in entry["passes"])})
