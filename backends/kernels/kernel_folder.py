"""A folder of built kernels, read: what each is launched with, and its code, byte for byte.

kernels.json        per kernel: architecture, arguments, constants, warps, shared bytes, sha256
sm_90/<name>.cubin  the code
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from specplan.backends.kernels.variants import INDEX
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import read_document, sha256_bytes

SCHEMA_VERSION = 1
_REMEDY = "Build the kernels again: specplan kernels build --out FOLDER"


@dataclass(frozen=True)
class BuiltKernel:
    """One kernel for one architecture, as the index tells of it.

    Attributes:
        name: of the variant.
        arch: the architecture, such as sm_90.
        function: the symbol in the cubin.
        file: the cubin, relative to the folder.
        sha256: of the cubin.
        signature: names and types of the arguments in their order; two null pointers follow them.
        constants: what was fixed when it was built.
        aligned: arguments that must be multiples of 16 (pointers: bytes; numbers: elements).
        num_warps: of 32 threads each, per program.
        shared_bytes: dynamic shared memory of a launch.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    name: str
    arch: str
    function: str
    file: str
    sha256: str
    signature: list[tuple[str, str]]
    constants: dict[str, int]
    aligned: list[str]
    num_warps: int
    shared_bytes: int


@dataclass(frozen=True)
class KernelIndex:
    """All that a folder holds.

    Attributes:
        schema_version: of this file.
        triton: the version that built it.
        kernels: one for each variant and architecture.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    schema_version: int
    triton: str
    kernels: list[BuiltKernel]


class Built(NamedTuple):
    """A kernel and its code."""

    kernel: BuiltKernel
    cubin: bytes


def read_kernels(folder: Path, arch: str) -> dict[str, Built]:
    """The kernels of a folder for one architecture, by name; every byte is checked.

    Raises:
        UsageError: the folder is not as it was written; names the file.
        MissingCapabilityError: it holds nothing for the architecture.
    """
    folder = Path(folder)
    index = read_index(folder)
    homes = homes_of(index, arch, folder)
    kernels = {k.name: k for name in homes for k in index.kernels if k.arch == name}
    return {name: Built(kernel, _read_cubin(folder, kernel)) for name, kernel in kernels.items()}


def homes_of(index: KernelIndex, arch: str, folder: Path) -> list[str]:
    """Architectures of a folder whose code runs on one (`serving`), of which there must be some.

    Raises:
        MissingCapabilityError: there are none.
    """
    homes = serving(index, arch)
    if not homes:
        there = sorted({kernel.arch for kernel in index.kernels})
        raise MissingCapabilityError(
            f"these kernels are for {', '.join(there) or 'nothing'}, not for {arch}",
            where=str(folder),
            remedy=f"Build them: specplan kernels build --arch {arch} --out FOLDER",
        )
    return homes


def serving(index: KernelIndex, arch: str) -> list[str]:
    """Architectures of a folder whose code runs on one, the closest last.

    Code for sm_80 also runs on later devices of its generation (CUDA programming guide, binary
    compatibility); code for sm_90 and later is built with features of that architecture alone.
    """
    there = sorted({kernel.arch for kernel in index.kernels})
    return [name for name in there if name == arch or "sm_80" <= name < arch <= "sm_89"]


def read_index(folder: Path) -> KernelIndex:
    """What a folder of kernels holds.

    Raises:
        UsageError: its list of kernels is not as it was written.
    """
    path = folder / INDEX
    data = read_document(path, "list of kernels", SCHEMA_VERSION, _REMEDY)
    try:
        index = TypeAdapter(KernelIndex).validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise _damaged(f"{place}: {first['msg'].lower()}", path) from error
    for kernel in index.kernels:
        if kernel.file != f"{kernel.arch}/{kernel.name}.cubin" or ".." in Path(kernel.file).parts:
            raise _damaged(f"{kernel.file!r} is no cubin's name", path)
        if kernel.shared_bytes < 0:
            raise _damaged(f"{kernel.name}: shared bytes below 0", path)
    return index


def _read_cubin(folder: Path, kernel: BuiltKernel) -> bytes:
    path = folder / kernel.file
    try:
        cubin = path.read_bytes()
    except OSError as error:
        raise _damaged(f"cannot read the kernel ({error.strerror})", path) from error
    if sha256_bytes(cubin) != kernel.sha256:
        raise _damaged("the kernel is not the one that was built (its sha256 differs)", path)
    if not cubin.startswith(b"\x7fELF"):
        raise _damaged("the kernel is no code for a GPU", path)
    return cubin


def _damaged(problem: str, path: Path) -> UsageError:
    return UsageError(problem, where=str(path), remedy=_REMEDY)
