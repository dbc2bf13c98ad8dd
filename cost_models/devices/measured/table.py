"""The table that `specplan profile device` fills, row by row, and can go on with."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mode
from types import MappingProxyType
from typing import Any

from specplan.cost_models.devices.measured.compiled_runs import CompiledRun
from specplan.cost_models.devices.measured.fitted import FittedForm, fit_form
from specplan.cost_models.devices.measured.rows import (
    SECTIONS,
    ForwardRow,
    Key,
    OpRow,
    PrefillRow,
    RoundRow,
    Row,
    read_row,
)
from specplan.cost_models.devices.measured.spread import drift_half_width, pass_scatter
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.capabilities import backend_name
from specplan.ir.errors import UsageError
from specplan.ir.files import read_document, write_json_atomic

__all__ = [
    "SCHEMA_VERSION", "FittedForm", "ForwardRow", "Key", "MeasuredTable", "OpRow", "PrefillRow",
    "Provenance", "RoundRow", "Row",
]  # fmt: skip

SCHEMA_VERSION = 3
_KIND = "measured_device"
_REMEDY = "Measure the device again with `specplan profile device`."


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", backend_name(self.backend))

    def compiled_by(self, backend: str, version: str) -> Provenance:
        """Of rounds that a backend compiles here.

        Args:
            backend: its name.
            version: its own; empty where that is torch's.
        """
        versions = {**self.versions, backend: version} if version else self.versions
        return replace(self, backend=backend, versions=versions)


class MeasuredTable:
    """Measured rows by key, with their provenance; grows while it is filled.

    Attributes:
        name: name of the device.
        provenance: of all rows.
        rows: by `row.key`.
        fits: the analytic form fitted to the rows, by (digest of the model, dtype).
        refined: rows measured in between because the grid's own showed a cliff.
        lane_overlap: see `specplan.cost_models.devices.device.Device`; None where not measured.
        compiled: rounds that backends ran as one call, by the backend's name.
    """

    def __init__(
        self,
        name: str,
        provenance: Provenance,
        rows: Iterable[Row] = (),
        fits: Iterable[FittedForm] = (),
        refined: int = 0,
        lane_overlap: float | None = None,
        compiled: Mapping[str, tuple[CompiledRun, ...]] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.provenance = provenance
        self.rows: dict[Key, Row] = {}
        self.fits = {(fit.model, fit.dtype): fit for fit in fits}
        self.refined = refined
        self.lane_overlap = lane_overlap
        self.compiled = dict(compiled)
        for row in rows:
            self.add(row)

    @property
    def drift(self) -> float:
        """Relative half width of the 90 % interval of the machine's speed at another moment."""
        return drift_half_width(self._cells())

    @property
    def scatter(self) -> float:
        """Relative standard deviation of a row's time in one pass, drift left out."""
        return pass_scatter(self._cells())

    def _cells(self) -> list[list[tuple[float, ...]]]:
        """Passes of all forwards, by batch and context: of rows with as many as most there."""
        cells: dict[tuple[int, int], list[tuple[float, ...]]] = defaultdict(list)
        for row in self.rows.values():
            if isinstance(row, ForwardRow) and len(row.passes) > 1 and row.seconds > 0.0:
                cells[row.batch, row.context].append(row.passes)
        listed = []
        for rows in cells.values():
            count = mode(map(len, rows))
            listed.append([passes for passes in rows if len(passes) == count])
        return listed

    def add(self, row: Row) -> None:
        """Add a row, in place of an earlier one with the same key."""
        self.rows[row.key] = row

    def join(self, row: Row) -> None:
        """Add a further pass of a row."""
        known = self.rows.get(row.key)
        self.rows[row.key] = row if known is None else known.joined(row)  # type: ignore[arg-type]

    def missing(self, grid: Iterable[Key]) -> list[Key]:
        """The keys of `grid` without a row yet, in the order of the grid."""
        return [key for key in grid if key not in self.rows]

    def fit(self, shape: ModelShape) -> FittedForm | None:
        """Fit the analytic form to the rows of a model and keep it; None when they are too few."""
        about = (shape.digest, shape.dtype)
        rows = self.rows.values()
        form = fit_form(
            shape,
            [r for r in rows if isinstance(r, ForwardRow) and (r.model, r.dtype) == about],
            [r for r in rows if isinstance(r, PrefillRow) and (r.model, r.dtype) == about],
        )
        self.fits.pop(about, None)
        if form is not None:
            self.fits[about] = form
        return form

    def save(self, path: Path | str) -> None:
        """Write the table atomically: a reader sees the old file or the whole new one."""
        sections: dict[str, list[dict[str, Any]]] = {section: [] for section in SECTIONS}
        for key in sorted(self.rows, key=repr):
            sections[key[0]].append(asdict(self.rows[key]))
        document = {
            "schema_version": SCHEMA_VERSION,
            "kind": _KIND,
            "name": self.name,
            "provenance": asdict(self.provenance),
            "drift": self.drift,
            "fits": [asdict(self.fits[about]) for about in sorted(self.fits)],
            "refined": self.refined,
            "lane_overlap": self.lane_overlap,
            "compiled_rounds": {
                name: [asdict(run) for run in runs] for name, runs in self.compiled.items()
            },
            **sections,
        }
        write_json_atomic(path, document)

    @classmethod
    def load(cls, path: Path | str) -> MeasuredTable:
        """Read a table.

        Raises:
            UsageError: the file is missing, or is no measured device of this version.
        """
        document = read_document(path, "measured device", SCHEMA_VERSION, _REMEDY, _KIND)
        try:
            return cls._read(document)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise UsageError(
                f"a row or the provenance does not fit the schema ({_plain(error)})",
                where=str(path),
                remedy=_REMEDY,
            ) from error

    @classmethod
    def _read(cls, document: dict[str, Any]) -> MeasuredTable:
        rows = [
            read_row(kind, entry)
            for section, kind in SECTIONS.items()
            for entry in document.get(section, [])
        ]
        fits = [FittedForm(**entry) for entry in document.get("fits", [])]
        provenance = Provenance(**document["provenance"])
        refined = int(document.get("refined", 0))
        overlap = document.get("lane_overlap")
        if overlap is not None and not 0.0 <= float(overlap) <= 1.0:
            raise ValueError(f"lane_overlap {overlap} is not between 0 and 1")
        compiled = {
            name: tuple(map(CompiledRun.read, entries))
            for name, entries in document.get("compiled_rounds", {}).items()
        }
        return cls(document["name"], provenance, rows, fits, refined, overlap, compiled)


def _plain(error: Exception) -> str:
    return re.sub(r"\b\w+\.__init__\(\) ", "", str(error))
