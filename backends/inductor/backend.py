"""The inductor backend: each round one call into native code, compiled ahead of time (AOTInductor).

    round.pt2            the package of AOTInductor
    tables.safetensors   constants that are not weights: ancestor masks, offsets, depths

Weights are those of the loaded checkpoint: all rounds share them, and no file contains them.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from specplan.backends.compiled_files import damaged, read_tables
from specplan.backends.inductor.capabilities import CAPABILITIES
from specplan.backends.registry import missing_packages
from specplan.backends.static.export import exported
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.identity import named_weights, weight_names
from specplan.backends.static.packages import RoundBackend
from specplan.backends.static.session import Program
from specplan.ir.errors import UsageError
from specplan.runtime.models.modules import Module

CODE, TABLES = "round.pt2", "tables.safetensors"
_LIBRARIES = b"libstdc++.so", b"libc++.so"
_CONFIG = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.compile_wrapper_opt_level": "O0",  # it only calls kernels
    # On a GPU kernels are tried out on the tensors that are traced: on made up ones, lengths of 0
    # among them, they read beyond the ends. What is written to is copied for that: caches twice.
    "triton.autotune_at_compile_time": False,
}


class InductorBackend(RoundBackend):
    """Compiles rounds to native code (AOTInductor).

    Args:
        fused_on: see `RoundBackend`.
    """

    capabilities = CAPABILITIES
    captured_on = frozenset({"cuda"})

    def __init__(self, fused_on: Collection[str] = ("cuda",)) -> None:
        self.fused_on = frozenset(fused_on)

    def available(self) -> str | None:
        """None when torch, transformers and a C++ compiler are here, else what is missing."""
        if shutil.which("g++") is None and shutil.which("clang++") is None:
            return missing_packages() or "there is no C++ compiler (g++ or clang++)"
        return missing_packages()

    def write(self, graph: RoundGraph, tensors: Sequence[Tensor], folder: Path) -> None:
        """See `RoundBackend.write`."""
        from safetensors.torch import save_file

        with torch.no_grad():
            program = exported(graph, tensors)
            tables = _name_constants(program, weight_names(graph.models))
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(folder / CODE), inductor_configs=_CONFIG
            )
        check_linked(folder / CODE)
        save_file({name: table.contiguous() for name, table in tables.items()}, folder / TABLES)

    def load(self, folder: Path, models: Mapping[str, Module]) -> Program:
        """See `RoundBackend.load`.

        Raises:
            UsageError: a file is damaged, or the models lack a weight; names it.
            Exception: whatever the loader raises where the code itself does not load here.
        """
        _check_archive(folder / CODE)
        tables = read_tables(folder / TABLES).items()
        device = next(iter(models.values())).device
        # Its locks wait for events, which a captured round must not.
        alone = device.type == "cuda"
        package = torch._inductor.aoti_load_package(str(folder / CODE), run_single_threaded=alone)
        known = {
            **named_weights(models),
            **{name: table.to(_place(name, device)) for name, table in tables},
        }
        wanted = package.get_constant_fqns()
        lacking = set(wanted) - set(known)
        if lacking:
            raise damaged(f"there is no weight or table {min(lacking)}", folder / TABLES)
        used = {name: known[name] for name in wanted}
        package.load_constants(used, check_full_update=True, user_managed=True)
        return _Loaded(package.loader, used)


def check_linked(path: Path) -> None:
    """Refuse code that contains the C++ library: it ends the process that loads it beside torch.

    Raises:
        UsageError: names the compiler.
    """
    with zipfile.ZipFile(path) as archive:
        shared = [archive.read(name) for name in archive.namelist() if name.endswith(".so")]
    if all(any(library in code for library in _LIBRARIES) for code in shared):
        return
    raise UsageError(
        "the C++ compiler links the C++ library statically, and torch cannot load such code",
        where=f"CXX={os.environ.get('CXX', 'g++')}",
        remedy="Name another compiler: CXX=/usr/bin/g++.",
    )


def _check_archive(path: Path) -> None:
    """Refuse an archive that is cut or changed, or whose files would leave their folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
            outside = [name for name in archive.namelist() if _leaves(name)]
    except Exception as error:  # damaged archives end in errors of many kinds
        raise damaged(f"this is no package of compiled code ({error})", path) from error
    if broken is not None:
        raise damaged(f"the file {broken} of the package is damaged", path)
    if outside:
        raise damaged(f"the package holds a file outside of its folder: {outside[0]}", path)


def _leaves(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts


def _place(table: str, device: torch.device) -> torch.device:
    """Where a table belongs: its name says on what kind of device it was met."""
    return device if table.startswith(device.type) else torch.device("cpu")


class _Loaded:
    """A package and the constants that it points to."""

    def __init__(self, loader: Any, constants: Mapping[str, Tensor]) -> None:
        self._run = loader.run
        self._constants = constants

    def __call__(self, *tensors: Tensor) -> Tensor:
        (report,) = self._run(list(tensors))
        assert isinstance(report, Tensor)
        return report


def _name_constants(program: ExportedProgram, name_of: Mapping[int, str]) -> dict[str, Tensor]:
    """Make the constants that tracing met buffers with lasting names.

    Returns:
        Those that are no weights.
    """
    constants, specs = dict(program.constants), []
    tables: dict[str, Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.CONSTANT_TENSOR and constants[spec.target or ""].numel():
            constant = constants.pop(spec.target or "")
            name = name_of.get(constant.data_ptr())
            if name is None:
                name = f"{constant.device.type}_table.{len(tables)}"
                tables[name] = constant
            program.state_dict[name] = constant
            spec = dataclasses.replace(spec, kind=InputKind.BUFFER, target=name, persistent=True)
        specs.append(spec)
    program.graph_signature.input_specs[:] = specs
    program.constants.clear()
    program.constants.update(constants)
    return tables


BACKEND = InductorBackend
