"""What safetensors files say about themselves; the weights are never loaded.

Layout of a file: 8 bytes little-endian header length, a JSON header
`{name: {dtype, shape, data_offsets}}`, then the data (safetensors README).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.cost_models.models.architectures.config import check_kinds
from specplan.ir.errors import UsageError

DTYPE_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library itself
_VOLATILE_KEYS = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor.

    Attributes:
        dtype: as safetensors names it.
        shape: its sizes.
        bytes: that it takes.
        start: its first byte, counted from the start of its file.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    start: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a checkpoint folder, sorted by name; none is legal.

    Raises:
        UsageError: when the index names a file that is not there.
    """
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return tuple(sorted(folder.glob("*.safetensors")))
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError("not a safetensors index", where=str(index)) from error
    for name in names:
        if not (folder / name).exists():
            raise UsageError(
                f"the index names {name}, which is missing",
                where=str(index),
                remedy="Download the checkpoint again.",
            )
    return tuple(folder / name for name in names)


def read_header(path: Path) -> dict[str, Tensor]:
    """Tensors of one safetensors file by name.

    Raises:
        UsageError: when the file is not a whole safetensors file.
    """
    raw = _header_bytes(path)
    try:
        entries = json.loads(raw)
        tensors = {
            name: Tensor(
                entry["dtype"],
                tuple(entry["shape"]),
                entry["data_offsets"][1] - entry["data_offsets"][0],
                8 + len(raw) + entry["data_offsets"][0],
            )
            for name, entry in entries.items()
            if name != "__metadata__"
        }
        end = max(
            (entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"),
            default=0,
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _broken(path, "its header is not readable") from error
    if path.stat().st_size != 8 + len(raw) + end:
        raise _broken(path, "its length does not match its header")
    return tensors


def stored_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name.

    Raises:
        UsageError: when a file is missing or is not a whole safetensors file.
    """
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        tensors.update(read_header(path))
    return tensors


def config_identity(config: Mapping[str, Any]) -> bytes:
    """The part of a config that makes the model, as canonical JSON bytes."""
    stable = {key: value for key, value in config.items() if key not in _VOLATILE_KEYS}
    return json.dumps(stable, sort_keys=True, separators=(",", ":")).encode()


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder.

    Raises:
        UsageError: when it is missing, is not a JSON object, or has a value of the wrong kind.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            "no readable config.json in the model folder",
            where=str(folder),
            remedy="Name a folder in the format of Hugging Face transformers.",
        ) from error
    except ValueError as error:
        raise UsageError("config.json is not valid JSON", where=str(path)) from error
    if not isinstance(config, dict):
        raise UsageError("config.json is not a JSON object", where=str(path))
    check_kinds(config, str(folder))
    return config


def _header_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _MAX_HEADER_BYTES:
            raise _broken(path, "its header length is impossible")
        raw = file.read(length)
    if len(raw) != length:
        raise _broken(path, "its header is cut off")
    return raw


def _broken(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"not a whole safetensors file: {reason}",
        where=str(path),
        remedy="Download or save the checkpoint again.",
    )
