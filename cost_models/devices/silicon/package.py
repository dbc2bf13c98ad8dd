"""Where the tables lie in the `aiconfigurator-core` package, and how they are read.

The package is not imported: its data files (Parquet and YAML, Apache-2.0) are opened directly.
Layout: `systems/<system>.yaml` data sheet; `systems/query_versions.yaml` the stacks' current
versions; `systems/data/<system>/<family>/<stack>/<version>/<table>.parquet`, latency in
milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import MissingCapabilityError, UsageError

Columns = Mapping[str, NDArray[Any]]

_PEAK_KEYS = {
    "bfloat16": "bfloat16_tc_flops",
    "float16": "bfloat16_tc_flops",
    "fp8": "fp8_tc_flops",
    "int8": "int8_tc_flops",
    "fp4": "fp4_tc_flops",
}


@dataclass(frozen=True, slots=True)
class DataSheet:
    """Data-sheet figures of a system.

    Attributes:
        memory_bandwidth: bytes per second.
        memory_bytes: nominal capacity.
        link_bandwidth: bytes per second from one device to its neighbours in a node.
        peaks: dense operations per second by number format.
    """

    memory_bandwidth: float
    memory_bytes: float
    link_bandwidth: float
    peaks: Mapping[str, float]

    def peak(self, math: str) -> float:
        """Operations per second; a format without own units runs in bfloat16's."""
        return self.peaks.get(math, self.peaks["bfloat16"])


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one table.

    Attributes:
        columns: by name.
        seconds: measured, one per row.
        source: package-relative file that they come from.
    """

    columns: Columns
    seconds: NDArray[np.float64]
    source: str

    def where(self, mask: NDArray[np.bool_]) -> Table:
        """Some of the rows."""
        columns = {name: values[mask] for name, values in self.columns.items()}
        return Table(columns, self.seconds[mask], self.source)


def systems_folder() -> Path:
    """The folder `systems` of the installed package.

    Raises:
        MissingCapabilityError: the extra is not installed.
    """
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations or find_spec("pyarrow") is None:
        raise MissingCapabilityError(
            "measured kernel tables need the Python package 'aiconfigurator-core', "
            "which is not installed",
            where="device silicon:...",
            remedy="Install it with: pip install 'specplan[silicon]'",
        )
    return Path(spec.submodule_search_locations[0]) / "systems"


def list_systems(folder: Path) -> tuple[str, ...]:
    """Systems with matrix product tables, each as `system/stack`."""
    tables = folder.glob("data/*/gemm/*/*/gemm_perf.parquet")
    return tuple(sorted({f"{path.parts[-5]}/{path.parts[-3]}" for path in tables}))


def read_sheet(folder: Path, system: str) -> DataSheet:
    """The data sheet of a system.

    Raises:
        UsageError: no such system.
    """
    sheet = _yaml(folder / f"{system}.yaml")
    gpu = sheet["gpu"]
    return DataSheet(
        float(gpu["mem_bw"]),
        float(gpu["mem_capacity"]),
        float(sheet["node"]["intra_node_bw"]),
        {math: float(gpu[key]) for math, key in _PEAK_KEYS.items() if key in gpu},
    )


def current_version(folder: Path, system: str, stack: str) -> str | None:
    """The version of a stack that the package calls current for a system; None for none."""
    file = folder / "query_versions.yaml"
    if not file.is_file():
        return None
    listed = _yaml(file)
    own = listed.get("overrides", {}).get(system, {}).get(stack)
    version = own or listed.get("defaults", {}).get(stack)
    return str(version["current"]) if version else None


def find_table(folder: Path, system: str, family: str, stack: str, name: str) -> Path | None:
    """The file of a table: the stack's current version, else the newest; None for none."""
    versions = folder / "data" / system / family / stack
    paths = sorted(versions.glob(f"*/{name}.parquet"), key=lambda path: _natural(path.parts[-2]))
    if not paths:
        return None
    current = current_version(folder, system, stack)
    return next((path for path in paths if path.parts[-2] == current), paths[-1])


def read_table(file: Path, columns: tuple[str, ...], optional: tuple[str, ...] = ()) -> Table:
    """Rows of a table.

    Args:
        file: the Parquet file.
        columns: what to read besides the latency.
        optional: columns that older tables lack.

    Raises:
        UsageError: the file is not a table with these columns and latencies.
    """
    import pyarrow.lib
    import pyarrow.parquet

    try:
        there = set(pyarrow.parquet.read_schema(file).names)
        missing = [name for name in (*columns, "latency") if name not in there]
        if missing:
            raise UsageError(f"has no column {', '.join(missing)}", where=str(file))
        names = [*columns, "latency", *(name for name in optional if name in there)]
        read = pyarrow.parquet.read_table(file, columns=names)
    except (OSError, pyarrow.lib.ArrowException) as error:
        raise UsageError(f"cannot read the table ({error})", where=str(file)) from error
    arrays = {name: read.column(name).to_numpy(zero_copy_only=False) for name in names}
    seconds = arrays.pop("latency").astype(np.float64) * 1e-3
    source = "/".join(file.parts[-5:])
    return Table(arrays, seconds, source).where(seconds > 0.0)


def _natural(version: str) -> tuple[tuple[int, int | str], ...]:
    """A key that sorts 0.9 before 0.10."""
    parts = re.findall(r"\d+|[a-z]+", version)
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in parts)


@lru_cache(maxsize=32)
def _yaml(file: Path) -> Any:
    from specplan.ir.text.yaml_text import read_data

    try:
        return read_data(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"no data sheet ({error.strerror})", where=str(file), remedy="Check the name."
        ) from error
