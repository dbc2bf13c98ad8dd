"""One published number, what we predict for it, and how a group of predictions scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError


@dataclass(frozen=True, eq=False)
class Row:
    """One published number. Compared by identity: tables do repeat themselves.

    Attributes:
        system: what was measured, e.g. `MagicDec`.
        metric: which of its numbers, e.g. `speedup`.
        hardware: on what, in the words of the source.
        source: the paper or repository, with its table.
        value: the number; some rows hold a range or a vector instead.
        target: name of the target model, empty where none is stated.
        draft: name of the draft model or method, empty where none is stated.
        task: the data set.
        setting: everything else (batch, context, temperature...), as published.
        unit: as published.
        note: as published.
        derived: computed from published numbers, rather than printed by the source.
    """

    system: str
    metric: str
    hardware: str = ""
    source: str = ""
    value: Any = None
    target: str = ""
    draft: str = ""
    task: str = ""
    setting: Mapping[str, Any] = field(default_factory=dict)
    unit: str = ""
    note: str = ""
    derived: bool = False

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Row:
        """A row of a file in the form of `published_dev.json`; keys may be missing or null."""
        pair = entry.get("model_pair")
        pair = pair if isinstance(pair, dict) else {}
        setting = entry.get("setting")

        def word(key: str) -> str:
            return str(entry.get(key) or "")

        return cls(
            system=word("system"),
            metric=word("metric"),
            hardware=word("hardware"),
            source=word("source"),
            task=word("task"),
            unit=word("unit"),
            note=word("note"),
            value=entry.get("value"),
            target=str(pair.get("target") or ""),
            draft=str(pair.get("draft") or ""),
            setting={str(k): _plain(v) for k, v in setting.items()}
            if isinstance(setting, dict)
            else {},
        )

    @property
    def number(self) -> float | None:
        """The value as a finite number, None where it is something else. May be 0 or less."""
        return _number(self.value)

    @property
    def positive(self) -> float | None:
        """The value as a number above 0, as times, ratios and counts of tokens are."""
        number = self.number
        return number if number is not None and number > 0.0 else None

    def get(self, key: str) -> float | None:
        """A figure of the setting, None where it is missing or no number."""
        return _number(self.setting.get(key))

    def count(self, key: str, most: int = 4096) -> int | None:
        """A setting that counts something, 1 to `most`; None where it does not."""
        value = self.get(key)
        return int(value) if value is not None and 1 <= value <= most else None

    def deriving(self, metric: str, value: float, unit: str = "") -> Row:
        """A number that follows from this row and others, e.g. a step-cost ratio."""
        return replace(self, metric=metric, value=value, unit=unit, derived=True)

    @property
    def label(self) -> str:
        """Where to find it in its table."""
        setting = " ".join(f"{key}={value}" for key, value in self.setting.items())
        return " | ".join(part for part in (self.target, self.draft, self.task, setting) if part)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What we say a row should be.

    Attributes:
        row: the published number.
        predicted: ours, in the row's unit.
        calibration: a constant of the model was set with this row: shown, never scored.
        group: predictions that share a group are also scored together, with rank agreement.
    """

    row: Row
    predicted: float
    calibration: bool = False
    group: str = ""

    @property
    def error(self) -> float:
        """Relative error, signed: predicted / published - 1."""
        value = self.row.number
        if value is None or value == 0.0:
            raise UsageError(
                f"a prediction for {self.row.value!r}, which is no number to compare with",
                where=f"{self.row.system}: {self.row.label}",
                remedy="Yield Unpredicted for such rows.",
            )
        return self.predicted / value - 1.0


@dataclass(frozen=True, eq=False)
class Unpredicted:
    """A row that no model reaches, with the reason."""

    row: Row
    reason: str


def read_rows(path: Path) -> list[Row]:
    """Rows of a file: a JSON list of objects, or `{"rows": [...]}`.

    Raises:
        UsageError: no such file, not JSON, or not in this form.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read rows ({error})", where=str(path), remedy="Name a JSON file of rows."
        ) from error
    entries = data.get("rows") if isinstance(data, dict) else data
    if not isinstance(entries, list):
        raise UsageError("not a list of rows", where=str(path), remedy="See published_dev.json.")
    return [Row.parse(entry) for entry in entries if isinstance(entry, dict)]


def index(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], Row]:
    """Rows by some of their attributes or settings; of several, the first."""
    first_rows: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        first_rows.setdefault(key_of(row, *keys), row)
    return first_rows


def key_of(row: Row, *keys: str) -> tuple[Any, ...]:
    """Under which `index` has a row."""
    values = (getattr(row, k) if hasattr(row, k) else row.setting.get(k) for k in keys)
    return tuple(v if isinstance(v, str | int | float | None) else str(v) for v in values)


def _plain(value: Any) -> str | int | float | None:
    """A setting as a word or a finite number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
