"""The inductor backend: each round one call into native code."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from specplan.backends.inductor.capabilities import CAPABILITIES
from specplan.backends.inductor.package import load_package, write_package
from specplan.backends.static.buckets import Bucket
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.session import Program
from specplan.ir.capabilities import require_support
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.folders import staged
from specplan.ir.plan import Plan
from specplan.ir.verify import check_plan
from specplan.runtime import require_torch
from specplan.runtime.models import CausalModel


class InductorBackend:
    """Compiles rounds ahead of time, for the shapes of the batches they meet."""

    capabilities = CAPABILITIES

    def available(self) -> str | None:
        """None when torch, transformers and a C++ compiler are here, else what is missing."""
        try:
            require_torch()
        except MissingCapabilityError as error:
            return str(error)
        if shutil.which("g++") is None and shutil.which("clang++") is None:
            return "there is no C++ compiler (g++ or clang++)"
        return None

    def compile(
        self,
        plan: Plan,
        models: Mapping[str, CausalModel],
        folder: Path | None = None,
        buckets: Sequence[Bucket] = (),
        *,
        frozen: bool = False,
    ) -> StaticExecutable:
        """An executable for a plan; a round is compiled when a batch first meets its shape.

        Args:
            plan: any plan; it is verified here.
            models: by the names the plan gives them.
            folder: where compiled rounds are and go; one that lasts as long as the process when
                None.
            buckets: shapes to fit batches into.
            frozen: nothing is compiled: rounds that are not in the folder run as graphs, eagerly.

        Raises:
            UsageError: the plan breaks a rule, or a model is missing.
            MissingCapabilityError: names the first op that cannot run here.
        """
        check_plan(plan)
        require_support(plan, self.capabilities)
        return StaticExecutable(plan, models, Packages(models, folder, frozen=frozen), buckets)


class Packages:
    """Compiled rounds in a folder, each in a folder of its own.

    Args:
        models: whose weights they share.
        folder: made when it is needed; a temporary one when None.
        frozen: nothing is compiled.
    """

    def __init__(
        self,
        models: Mapping[str, CausalModel],
        folder: Path | None = None,
        *,
        frozen: bool = False,
    ) -> None:
        self.models = models
        self.frozen = frozen
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="specplan-")
            folder = Path(self._temporary.name)
        self.folder = folder

    def __call__(self, graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> Program:
        """The compiled round, from the folder where it is there."""
        home = self.folder / package_name(graph, bucket)
        if not home.is_dir():
            if self.frozen:
                return graph
            with staged(home) as staging:
                write_package(graph, tensors, staging)
        return load_package(home, self.models)


def package_name(graph: RoundGraph, bucket: Bucket) -> str:
    """Name of a compiled round's folder."""
    return f"{graph.item.name}-{graph.sampling.word}-{bucket.word}"
