"""What GGUF files say about themselves; the weights are never loaded.

Layout (ggml's docs/gguf.md, version 3): magic, version, counts of tensors and of metadata, the
metadata as typed key-value pairs, then per tensor its name, dimensions, type and offset; all
little-endian. The data begin at the next multiple of `general.alignment`.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specplan.cost_models.models.number_formats import GGUF_BLOCKS
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import gguf_parts

_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f",
    7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
    41: "Q1_0",
}  # fmt: skip
"""ggml's tensor types by number (ggml.h); the integer ones hold no weights."""
_LONGEST_ARRAY = 4096
"""Longer arrays are token tables: skipped, only their length is kept."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One stored tensor: its type, a key of `GGUF_BLOCKS`, and its dimensions, rows last."""

    type: str
    dimensions: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.dimensions)

    @property
    def bytes(self) -> int:
        """Bytes that it takes."""
        elements, size = GGUF_BLOCKS[self.type]
        return self.elements // elements * size


@dataclass(frozen=True)
class GgufModel:
    """Metadata and tensors of a model, all its files together.

    Attributes:
        metadata: values by key; of long arrays only the length, under `<key>.length`.
        tensors: by name.
        files: what was read, in order.
    """

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    files: tuple[Path, ...]


def read_gguf(path: Path | str) -> GgufModel:
    """Metadata and tensors of a GGUF file and, where it is the first of several, of the others.

    Raises:
        UsageError: a file is missing, or is not a whole GGUF file of version 2 or 3.
        MissingCapabilityError: a tensor is of a type that is not known.
    """
    path = Path(path)
    files = gguf_parts(path)
    metadata: dict[str, Any] = {}
    tensors: dict[str, GgufTensor] = {}
    for file in files:
        of_file, tensors_of_file = _read_file(file)
        metadata = {**of_file, **metadata}
        tensors |= tensors_of_file
    expected = int(metadata.get("split.count", 0) or 1)
    if expected != len(files):
        raise UsageError(
            f"the model is split into {expected} files, found {len(files)}",
            where=str(path),
            remedy="Name the first file, and keep all of them in one folder.",
        )
    return GgufModel(metadata, tensors, files)


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data, path).model()
    except OSError as error:
        raise UsageError(
            f"cannot read the GGUF file ({error.strerror})", where=str(path)
        ) from error
    except (struct.error, ValueError, OverflowError) as error:
        raise _broken(path, f"its header is not readable ({error})") from error


@dataclass
class _Cursor:
    """A place in a file; every read is checked against the file's end."""

    data: mmap.mmap
    path: Path
    at: int = 0
    ends: list[int] = field(default_factory=list)

    def model(self) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
        if self.take(4) != b"GGUF":
            raise _broken(self.path, "it does not begin with GGUF")
        version = self.number("<I")
        if version not in (2, 3):
            raise _broken(self.path, f"its version is {version}, little-endian 2 or 3 is known")
        tensors, keys = self.number("<Q"), self.number("<Q")
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self.text()
            if key in metadata:
                raise _broken(self.path, f"it states {key!r} twice")
            self.value(key, metadata)
        by_name: dict[str, GgufTensor] = {}
        for _ in range(tensors):
            name = self.text()
            if name in by_name:
                raise _broken(self.path, f"it holds {name!r} twice")
            by_name[name] = self.tensor(name)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise _broken(self.path, f"its alignment is {alignment!r}")
        begin = -(-self.at // alignment) * alignment
        if begin + max(self.ends, default=0) > len(self.data):
            raise _broken(self.path, "it is cut off")
        return metadata, by_name

    def tensor(self, name: str) -> GgufTensor:
        ranks = self.number("<I")
        if not 1 <= ranks <= 4:
            raise _broken(self.path, f"{name!r} has {ranks} dimensions")
        dimensions = tuple(self.number("<Q") for _ in range(ranks))
        number = self.number("<I")
        if number not in _TYPES:
            raise MissingCapabilityError(
                f"tensor {name!r} is of ggml type {number}, which cannot be priced yet",
                where=str(self.path),
                remedy=f"Known types: {', '.join(_TYPES.values())}.",
            )
        tensor = GgufTensor(_TYPES[number], dimensions)
        if dimensions[0] % GGUF_BLOCKS[tensor.type][0]:
            raise _broken(self.path, f"rows of {name!r} are no whole blocks")
        self.ends.append(self.number("<Q") + tensor.bytes)
        return tensor

    def value(self, key: str, metadata: dict[str, Any]) -> None:
        kind = self.number("<I")
        if kind != _ARRAY:
            metadata[key] = self.scalar(kind)
            return
        inner, length = self.number("<I"), self.number("<Q")
        if inner in _SCALARS and length > _LONGEST_ARRAY:
            self.take(struct.calcsize(_SCALARS[inner]) * length)
        elif length > _LONGEST_ARRAY:
            for _ in range(length):
                self.take(self.number("<Q"))
        else:
            metadata[key] = tuple(self.scalar(inner) for _ in range(length))
            return
        metadata[f"{key}.length"] = length

    def scalar(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind not in _SCALARS:
            raise _broken(self.path, f"it has a value of type {kind}")
        return self.number(_SCALARS[kind])

    def text(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", errors="replace")

    def number(self, form: str) -> Any:
        (number,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return number

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise _broken(self.path, "its header is cut off")
        self.at += size
        return self.data[self.at - size : self.at]


def _broken(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"not a whole GGUF file: {reason}", where=str(path), remedy="Download the file again."
    )
