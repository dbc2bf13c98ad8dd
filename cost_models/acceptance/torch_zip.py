"""Tensors of a file that `torch.save` wrote, read without running what is in it.

Such a file is a zip archive: `data.pkl`, a pickle program, and the bytes of each storage. The
program is taken apart by `pickletools.genops` and followed here step by step; the only calls that
it may hold are those that rebuild a tensor and an empty ordered dict, and they are carried out by
this file. Whatever else it asks for is refused by name. Source: the format as written by torch 1.6
and later (torch/serialization.py), the opcodes as in Python's pickletools.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.ir.errors import UsageError

_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_MOST_BYTES = 1 << 26
_STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}
_ORDERED_DICT = "collections OrderedDict"
_REBUILD = "torch._utils _rebuild_tensor_v2"
_REMEDY = "Open it in torch with weights_only and save the plain tensor again."
_IGNORED = frozenset({"PROTO", "FRAME", "STOP"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"})
_TEXTS = frozenset({"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class _Name:
    """A global that the program names; nothing is imported."""

    name: str


@dataclass(frozen=True)
class _Storage:
    values: NDArray[Any]


class _Mark:
    """Where a list of arguments begins on the stack."""


def read_torch_zip(path: Path | str) -> Any:
    """What was saved: tensors as arrays, inside of lists, tuples and dicts.

    Raises:
        UsageError: it is no such file, or holds anything but tensors and plain values.
    """
    where = str(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the file ({error.strerror})",
            where=where,
            remedy="Check the path and its permissions.",
        ) from error
    if data.startswith(_LEGACY):
        raise UsageError("it is in torch's legacy format", where=where, remedy=_REMEDY)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _Program(archive, where).run()
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        what = f"it is no file of torch ({error})"
        raise UsageError(what, where=where, remedy="Give the .pt file.") from error
    except (
        ValueError,
        RuntimeError,
        zlib.error,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise UsageError(
            f"it is a broken file of torch ({error!r})", where=where, remedy="Give the whole file."
        ) from error


class _Program:
    """The pickle program of an archive, followed on a stack of plain values."""

    def __init__(self, archive: zipfile.ZipFile, where: str) -> None:
        self.archive = archive
        self.where = where
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise self.refusal("an archive without data.pkl")
        self.folder = names[0].removesuffix("data.pkl")
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def refusal(self, what: str) -> UsageError:
        return UsageError(f"it holds {what}", where=self.where, remedy=_REMEDY)

    def read(self, name: str) -> bytes:
        if self.archive.getinfo(name).file_size > _MOST_BYTES:
            raise self.refusal(f"{name} of more than {_MOST_BYTES >> 20} MiB")
        return self.archive.read(name)

    def run(self) -> Any:
        for opcode, argument, _ in pickletools.genops(self.read(f"{self.folder}data.pkl")):
            self.step(opcode.name, argument)
        return self.stack[-1]

    def step(self, opcode: str, argument: Any) -> None:
        if opcode in _IGNORED:
            return
        if opcode in _NUMBERS or opcode in _TEXTS:
            self.stack.append(argument)
        elif opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _TUPLES:
            self.stack.append(tuple(self.pop(_TUPLES[opcode])))
        elif opcode in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if opcode == "MEMOIZE" else argument] = self.stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        else:
            self.build(opcode, argument)

    def build(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case "MARK":
                stack.append(_Mark())
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_DICT":
                stack.append({})
            case "TUPLE":
                stack.append(tuple(self.pop_marked()))
            case "APPEND" | "APPENDS":
                items = self.pop(1) if opcode == "APPEND" else self.pop_marked()
                self.target(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.pop(2) if opcode == "SETITEM" else self.pop_marked()
                self.target(dict).update(zip(items[::2], items[1::2], strict=True))
            case "GLOBAL":
                stack.append(_Name(argument))
            case "STACK_GLOBAL":
                stack.append(_Name(" ".join(map(str, self.pop(2)))))
            case "BINPERSID":
                stack.append(self.storage(*self.pop(1)))
            case "REDUCE":
                called, arguments = self.pop(2)
                stack.append(self.call(called, arguments))
            case _:
                raise self.refusal(f"the pickle opcode {opcode}")

    def pop(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise ValueError("the pickle stack is empty")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def pop_marked(self) -> list[Any]:
        marks = [index for index, value in enumerate(self.stack) if isinstance(value, _Mark)]
        taken = self.pop(len(self.stack) - marks[-1])
        return taken[1:]

    def target(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise self.refusal(f"items for a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def storage(self, reference: Any) -> _Storage:
        """Bytes of the archive that a persistent id stands for."""
        kind, dtype, key, _location, count = reference
        name = dtype.name if isinstance(dtype, _Name) else repr(dtype)
        module, _, storage = name.partition(" ")
        if kind != "storage" or module != "torch" or storage not in _STORAGES:
            raise self.refusal(f"the storage {name}")
        values = np.frombuffer(self.read(f"{self.folder}data/{key}"), dtype=_STORAGES[storage])
        if len(values) < count:
            raise ValueError(f"storage {key} has {len(values)} of {count} values")
        return _Storage(values)

    def call(self, called: Any, arguments: Any) -> Any:
        """The two calls there may be."""
        name = called.name if isinstance(called, _Name) else repr(called)
        if name == _ORDERED_DICT and arguments == ():
            return {}
        if name != _REBUILD:
            raise self.refusal(f"a call of {name}, which is not carried out")
        storage, offset, size, stride, *_ = arguments
        return _tensor(storage, offset, tuple(size), tuple(stride))


def _tensor(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> NDArray[Any]:
    """The elements of a storage that a tensor shows, [size]."""
    values = storage.values
    if len(size) != len(stride) or min((*size, *stride, offset), default=0) < 0:
        raise ValueError(f"a tensor of size {size} and stride {stride} at {offset}")
    if 0 in size:
        return np.zeros(size, values.dtype)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(values) or np.prod(size, dtype=np.float64) > len(values):
        raise ValueError(f"a tensor of size {size} and stride {stride} beyond its storage")
    steps = tuple(step * values.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(values[offset:], size, steps).copy()


def describe(value: object) -> str:
    """A few words about what was saved, for messages."""
    if isinstance(value, np.ndarray):
        return f"a tensor of size {list(value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(repr, value))}"
    return f"a {type(value).__name__}"
