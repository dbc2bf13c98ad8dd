"""The table that `specplan profile device` fills, row by row, and can go on with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from specplan.cost_models.intervals import Seconds
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json, write_json_atomic

SCHEMA_VERSION = 1
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Timing:
    """Statistics of the runs of one measurement, seconds: median and quartiles."""

    seconds: float
    low: float
    high: float
    runs: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.seconds <= self.high or self.runs < 1:
            raise UsageError(
                f"a measurement needs 0 <= low <= seconds <= high and runs >= 1, got {self!r}"
            )

    @property
    def time(self) -> Seconds:
        """As a time with its interval."""
        return Seconds(self.seconds, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRow(_Timing):
    """A forward over `tokens` query tokens per sequence, logits at each of them.

    Attributes:
        model: digest of the model.
        dtype: number format it ran in.
        batch: sequences.
        tokens: query tokens per sequence.
        context: tokens in the cache per sequence.
        layers: half-open span of layers, None for all.
    """

    model: str
    dtype: str
    batch: int
    tokens: int
    context: int
    layers: tuple[int, int] | None = None

    @property
    def key(self) -> Key:
        """What the row is about."""
        return (
            "forward",
            self.model,
            self.dtype,
            self.batch,
            self.tokens,
            self.context,
            self.layers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillRow(_Timing):
    """A prompt of `tokens` per sequence into an empty cache, logits of the last token."""

    model: str
    dtype: str
    batch: int
    tokens: int

    @property
    def key(self) -> Key:
        """What the row is about."""
        return ("prefill", self.model, self.dtype, self.batch, self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow(_Timing):
    """An op that is no forward, over `width` nodes per sequence; `op` may be `op:variant`."""

    op: str
    batch: int
    width: int

    @property
    def key(self) -> Key:
        """What the row is about."""
        return ("op", self.op, self.batch, self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow(_Timing):
    """What a round takes beside its ops."""

    batch: int

    @property
    def key(self) -> Key:
        """What the row is about."""
        return ("round", self.batch)


Row = ForwardRow | PrefillRow | OpRow | RoundRow
_SECTIONS: dict[str, type[Row]] = {
    "forward": ForwardRow,
    "prefill": PrefillRow,
    "op": OpRow,
    "round": RoundRow,
}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the numbers of a table come from.

    Attributes:
        hardware: name of the processor or accelerator.
        backend: what ran the ops.
        threads: threads per op.
        date: day of the first measurement, ISO 8601.
        memory_bytes: memory of the device, bytes.
        versions: software by name.
    """

    hardware: str
    backend: str
    threads: int
    date: str
    memory_bytes: float
    versions: Mapping[str, str] = field(default_factory=dict)

    def differences(self, other: Provenance) -> tuple[str, ...]:
        """What keeps rows of `other` from standing beside rows of this; the date does not."""
        names = ("hardware", "backend", "threads", "versions")
        return tuple(
            f"{name}: {getattr(self, name)} against {getattr(other, name)}"
            for name in names
            if getattr(self, name) != getattr(other, name)
        )


class MeasuredTable:
    """Measured rows by key, with their provenance; grows while it is filled.

    Attributes:
        name: name of the device.
        provenance: of all rows.
        rows: by `row.key`.
    """

    def __init__(self, name: str, provenance: Provenance, rows: Iterable[Row] = ()) -> None:
        self.name = name
        self.provenance = provenance
        self.rows: dict[Key, Row] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a row, in place of an earlier one with the same key."""
        self.rows[row.key] = row

    def missing(self, grid: Iterable[Key]) -> list[Key]:
        """The keys of `grid` without a row yet, in the order of the grid."""
        return [key for key in grid if key not in self.rows]

    def merge(self, other: MeasuredTable) -> None:
        """Add all rows of a table of the same provenance.

        Raises:
            UsageError: the tables were measured under different conditions.
        """
        differences = self.provenance.differences(other.provenance)
        if differences:
            raise UsageError(
                f"tables measured under different conditions: {'; '.join(differences)}",
                where=f"device {self.name}",
                remedy="Keep them in different files.",
            )
        for row in other.rows.values():
            self.add(row)

    def save(self, path: Path | str) -> None:
        """Write the table atomically: a reader sees the old file or the whole new one."""
        sections: dict[str, list[dict[str, Any]]] = {section: [] for section in _SECTIONS}
        for key in sorted(self.rows, key=repr):
            sections[key[0]].append(asdict(self.rows[key]))
        document = {
            "schema_version": SCHEMA_VERSION,
            "kind": "measured_device",
            "name": self.name,
            "provenance": asdict(self.provenance),
            **sections,
        }
        write_json_atomic(path, document)

    @classmethod
    def load(cls, path: Path | str) -> MeasuredTable:
        """Read a table.

        Raises:
            UsageError: the file is missing, or is no measured device of this version.
        """
        document = read_json(path, "measured device")
        if not isinstance(document, dict) or document.get("kind") != "measured_device":
            raise UsageError("not a measured device", where=str(path))
        if document.get("schema_version") != SCHEMA_VERSION:
            raise UsageError(
                f"schema version {document.get('schema_version')!r}, expected {SCHEMA_VERSION}",
                where=str(path),
                remedy="Measure the device again with `specplan profile device`.",
            )
        try:
            rows = [
                _row(kind, entry)
                for section, kind in _SECTIONS.items()
                for entry in document.get(section, [])
            ]
            return cls(document["name"], Provenance(**document["provenance"]), rows)
        except (TypeError, KeyError, ValueError) as error:
            raise UsageError(
                f"a row or the provenance does not fit the schema ({_plain(error)})",
                where=str(path),
                remedy="Measure the device again with `specplan profile device`.",
            ) from error


def _row(kind: type[Row], entry: dict[str, Any]) -> Row:
    values = dict(entry)
    if values.get("layers") is not None:
        first, last = values["layers"]
        values["layers"] = (first, last)
    for item in fields(kind):
        value = values.get(item.name)
        if item.type in ("int", "float") and (
            isinstance(value, bool) or not isinstance(value, int | float)
        ):
            raise TypeError(f"{item.name} is {value!r}")
    return kind(**values)


def _plain(error: Exception) -> str:
    return re.sub(r"\b\w+\.__init__\(\) ", "", str(error))
