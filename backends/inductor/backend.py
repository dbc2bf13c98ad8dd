"""The inductor backend: each round one call into native code."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from specplan.backends.inductor.capabilities import CAPABILITIES
from specplan.backends.inductor.package import load_package, write_package
from specplan.backends.registry import missing_packages
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.packages import RoundBackend
from specplan.backends.static.session import Program
from specplan.runtime.models.modules import Module


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
        write_package(graph, tensors, folder)

    def load(self, folder: Path, models: Mapping[str, Module]) -> Program:
        """See `RoundBackend.load`."""
        return load_package(folder, models)


BACKEND = InductorBackend
