"""Kernels built ahead of time, on any machine: a folder of cubins and what they are launched with.

    kernels.json        per kernel: architecture, arguments, constants, warps, shared bytes, sha256
    sm_90/<name>.cubin  the code

A folder is written whole or not at all; what is read from it is checked before it is given out.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from specplan.backends.kernels.variants import ARCHITECTURES, INDEX, Variant
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import read_json, write_json_atomic
from specplan.ir.folders import check_destination, staged

SCHEMA_VERSION = 1
Progress = Callable[[str, int, int], None]


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


def build_kernels(
    folder: Path,
    variants: Sequence[Variant],
    architectures: Sequence[str] = ARCHITECTURES,
    progress: Progress | None = None,
) -> KernelIndex:
    """Build kernels and write them to a folder; needs no GPU.

    Args:
        folder: is replaced; must be empty, missing, or hold kernels.
        variants: what to build.
        architectures: for which devices.
        progress: told of each kernel.

    Raises:
        UsageError: an architecture is unknown, or the folder holds something else.
        MissingCapabilityError: triton is missing.
    """
    folder = Path(folder)
    check_destination(folder, INDEX, "kernels")
    found = []
    with staged(folder) as staging:
        for kernel, cubin in compiled(variants, architectures, progress):
            path = staging / kernel.file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(cubin)
            found.append(kernel)
        index = KernelIndex(SCHEMA_VERSION, triton_version(), found)
        write_json_atomic(staging / INDEX, asdict(index))
    return index


def compiled(
    variants: Sequence[Variant],
    architectures: Sequence[str] = ARCHITECTURES,
    progress: Progress | None = None,
) -> Iterator[Built]:
    """Compile kernels, as many at a time as there are processors; raises as `build_kernels`."""
    for arch in architectures:
        if arch not in ARCHITECTURES:
            raise UsageError(
                f"there are no kernels for the architecture {arch!r}",
                remedy=f"Choose from {', '.join(ARCHITECTURES)}.",
            )
    triton_version()
    jobs = [(variant, arch) for arch in architectures for variant in variants]
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done, built in enumerate(pool.map(_compile, jobs), start=1):
            if progress is not None:
                progress("kernels", done, len(jobs))
            yield built


def triton_version() -> str:
    """The installed version.

    Raises:
        MissingCapabilityError: there is none.
    """
    try:
        import triton
    except ImportError as error:
        raise MissingCapabilityError(
            "building kernels needs triton, which is not installed",
            remedy="Install it with: pip install 'specplan[triton]'",
        ) from error
    return str(triton.__version__)


def _compile(job: tuple[Variant, str]) -> Built:
    variant, arch = job
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel: Any = getattr(
        importlib.import_module(f"specplan.backends.kernels.{variant.module}"), variant.kernel
    )
    names: list[str] = kernel.arg_names
    source = ASTSource(
        kernel,
        {name: variant.signature.get(name, "constexpr") for name in names},
        constexprs=dict(variant.constants),
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in variant.aligned},
    )
    options = {
        "num_warps": variant.num_warps,
        "num_stages": variant.num_stages,
        "enable_fp_fusion": variant.module == "attention_kernels",
    }
    with _own_settings():
        made: Any = triton.compile(source, GPUTarget("cuda", int(arch[3:]), 32), options)
    cubin: bytes = made.asm["cubin"]
    return Built(
        BuiltKernel(
            name=variant.name,
            arch=arch,
            function=made.metadata.name,
            file=f"{arch}/{variant.name}.cubin",
            sha256=hashlib.sha256(cubin).hexdigest(),
            signature=list(variant.signature.items()),
            constants={name: int(value) for name, value in variant.constants.items()},
            aligned=list(variant.aligned),
            num_warps=variant.num_warps,
            shared_bytes=made.metadata.shared,
        ),
        cubin,
    )


@contextmanager
def _own_settings() -> Iterator[None]:
    """Triton's cache in a folder of its own, so that what is built is built here and now.

    No line numbers of the source either: they are half of a cubin and a good part of ptxas' time.
    """
    with tempfile.TemporaryDirectory(prefix="specplan-triton-") as folder:
        wanted = {"TRITON_CACHE_DIR": folder, "TRITON_DISABLE_LINE_INFO": "1"}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def read_kernels(folder: Path, arch: str) -> dict[str, Built]:
    """The kernels of a folder for one architecture, by name; every byte is checked.

    Code for sm_80 also runs on later devices of its generation (CUDA programming guide, binary
    compatibility); code for sm_90 and later is built with features of that architecture alone.

    Raises:
        UsageError: the folder is not as it was written; names the file.
        MissingCapabilityError: it holds nothing for the architecture.
    """
    folder = Path(folder)
    index = read_index(folder)
    there = sorted({kernel.arch for kernel in index.kernels})
    if arch not in there and arch.startswith("sm_8"):
        arch = max((known for known in there if "sm_80" <= known < arch), default=arch)
    if arch not in there:
        raise MissingCapabilityError(
            f"these kernels are for {', '.join(there) or 'nothing'}, not for {arch}",
            where=str(folder),
            remedy=f"Build them: specplan kernels build --arch {arch} --out FOLDER",
        )
    return {
        kernel.name: Built(kernel, _read_cubin(folder, kernel))
        for kernel in index.kernels
        if kernel.arch == arch
    }


def read_index(folder: Path) -> KernelIndex:
    """What a folder of kernels holds.

    Raises:
        UsageError: its list of kernels is not as it was written.
    """
    data = read_json(folder / INDEX, "list of kernels")
    where = str(folder / INDEX)
    remedy = "Build them anew: specplan kernels build --out FOLDER"
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"the list of kernels has version {version!r}, not {SCHEMA_VERSION}",
            where=where,
            remedy=remedy,
        )
    try:
        index = TypeAdapter(KernelIndex).validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{place}: {first['msg'].lower()}", where=where, remedy=remedy) from error
    for kernel in index.kernels:
        if kernel.file != f"{kernel.arch}/{kernel.name}.cubin" or ".." in Path(kernel.file).parts:
            raise UsageError(f"{kernel.file!r} is no cubin's name", where=where, remedy=remedy)
    return index


def _read_cubin(folder: Path, kernel: BuiltKernel) -> bytes:
    path = folder / kernel.file
    try:
        cubin = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the kernel ({error.strerror})",
            where=str(path),
            remedy="Build the kernels anew: specplan kernels build --out FOLDER",
        ) from error
    if hashlib.sha256(cubin).hexdigest() != kernel.sha256:
        raise UsageError(
            "the kernel is not the one that was built (its sha256 differs)",
            where=str(path),
            remedy="Build the kernels anew: specplan kernels build --out FOLDER",
        )
    return cubin
