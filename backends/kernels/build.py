"""Kernels built ahead of time, on any machine: a folder of cubins and what they are launched with.

A folder is written whole or not at all; `specplan.backends.kernels.kernel_folder` reads it.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from specplan.backends.kernels.kernel_folder import SCHEMA_VERSION, Built, BuiltKernel, KernelIndex
from specplan.backends.kernels.variants import ARCHITECTURES, INDEX, Variant
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import check_destination, sha256_bytes, staged, write_json_atomic

Progress = Callable[[str, int, int], None]


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
    kernels = []
    with staged(folder) as staging:
        for kernel, cubin in compiled(variants, architectures, progress):
            path = staging / kernel.file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(cubin)
            kernels.append(kernel)
        index = KernelIndex(SCHEMA_VERSION, triton_version(), kernels)
        write_json_atomic(staging / INDEX, asdict(index))
    return index


def compiled(
    variants: Sequence[Variant],
    architectures: Sequence[str] = ARCHITECTURES,
    progress: Progress | None = None,
) -> Iterator[Built]:
    """Compile kernels, as many at a time as there are processors; raises as `build_kernels`.

    What sm_80 serves for sm_89 just as well is built once: all but attention.
    """
    for arch in architectures:
        if arch not in ARCHITECTURES:
            raise UsageError(
                f"there are no kernels for the architecture {arch!r}",
                remedy=f"Choose from {', '.join(ARCHITECTURES)}.",
            )
    triton_version()
    jobs = [
        (variant, arch)
        for arch in architectures
        for variant in variants
        if arch in variant.architectures and not _served(variant, arch, architectures)
    ]
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done, built in enumerate(pool.map(_compile, jobs), start=1):
            if progress is not None:
                progress("kernels", done, len(jobs))
            yield built


def _served(variant: Variant, arch: str, architectures: Sequence[str]) -> bool:
    """Whether the code for sm_80, which is built too, does as well: see `kernel_folder.serving`."""
    attends = variant.module == "attention_kernels"
    return arch == "sm_89" and "sm_80" in architectures and not attends


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
            sha256=sha256_bytes(cubin),
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
