"""The executable of a bundle: its compiled rounds if a batch fits them, else the interpreter.

A plan without a bundle runs by one backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from specplan.backends.bundle import Bundle
from specplan.backends.kernels.launcher import load_kernels
from specplan.backends.machine import check_machine
from specplan.backends.manifest import FOLDER, KERNELS, Executables
from specplan.backends.registry import backend_capabilities, get_backend, round_backend
from specplan.backends.static.buckets import Bucket, Sampling, bucket_for
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.export import flat_program
from specplan.backends.static.graph_capabilities import STATIC, UNCOMPILED
from specplan.backends.static.packages import check_packages
from specplan.cost_models.models.number_formats import cache_formats
from specplan.cost_models.placement import streamed_layers
from specplan.ir.capabilities import require_support
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import Model, Plan
from specplan.runtime.executable import Executable, Session
from specplan.runtime.models.loading import load_all
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings


def load_models(bundle: Bundle, device: str = "cpu") -> dict[str, Any]:
    """A bundle's models by the names its plan gives them, in the number types it says.

    Args:
        bundle: checked.
        device: a torch device.

    Raises:
        UsageError: a checkpoint cannot be read.
    """
    folders = {
        name: (bundle.model_folder(name), reference.dtype)
        for name, reference in bundle.models.items()
    }
    problem = bundle.problem
    return load_all(
        folders,
        bundle.plan.models_run,
        device,
        streamed_layers(problem),
        cache_formats(problem),
    )


def compile_plan(plan: Plan, folders: Mapping[str, Path], backend: str) -> Executable:
    """What runs a plan, compiled by one backend for checkpoints on the CPU.

    Args:
        plan: verified.
        folders: of checkpoints, by the names the plan gives them.
        backend: its name; `static` runs rounds as graphs that no compiler has seen.

    Raises:
        UsageError: no backend has that name, or a checkpoint cannot be read or is another than the
            plan says.
        MissingCapabilityError: the backend does not run the plan or cannot run here.
    """
    compiler = None if backend == STATIC.backend else get_backend(backend)
    missing = None if compiler is None else compiler.available()
    if missing is not None:
        raise MissingCapabilityError(missing, where=f"backend {backend}")
    require_support(plan, STATIC if compiler is None else compiler.capabilities)
    declared = {name: Model(name=name) for name in folders}
    declared |= {model.name: model for model in plan.models}
    given = {name: (folder, declared[name].dtype or "auto") for name, folder in folders.items()}
    models = load_all(given, plan.models_run)
    for name, model in models.items():
        _check_digest(declared.get(name, Model(name=name)), model)
    if compiler is None:
        return StaticExecutable(plan, models)
    executable: Executable = compiler.compile(plan, models)
    return executable


def _check_digest(declared: Model, model: Any) -> None:
    """Refuse a checkpoint that is another than the one a plan was made for.

    Raises:
        UsageError: names the model.
    """
    if declared.digest not in (None, model.digest):
        raise UsageError(
            f"the checkpoint of model {declared.name} is not the one the plan was made for",
            where=model.name,
            remedy="Give the checkpoint it was made for, or take digest= out of the plan.",
        )


def open_executable(bundle: Bundle, models: Mapping[str, Module]) -> Executable:
    """What runs a bundle's plan.

    Args:
        bundle: checked.
        models: by the names the plan gives them.

    Raises:
        MissingCapabilityError: the bundle does not suit the machine (`check_machine`).
        UsageError: the models do not fit the plan, or no backend has the name that a shape says.
    """
    device = next(iter(models.values())).device
    check_machine(bundle, device)
    plain: Executable = get_backend(bundle.backend).compile(bundle.plan, models)
    if streamed_layers(bundle.problem):  # a graph would not read them
        return plain
    if device.type == "cuda" and not UNCOMPILED.refusals(bundle.plan):
        return _captured(bundle, models, device)
    if device.type != "cpu":  # rounds are compiled for the processor
        return plain
    executables = bundle.executables
    if executables is None:
        return plain
    return FittedExecutable(plain, executables, models, bundle.folder / FOLDER)


def _captured(bundle: Bundle, models: Mapping[str, Module], device: torch.device) -> Executable:
    """Rounds captured in CUDA graphs, which launch the bundle's kernels where it has some.

    On an H100 a round of an 8B target took 13 ms so, and 240 ms op by op.
    """
    fused = {device.type} if bundle.kernels else set()
    if fused:
        load_kernels(bundle.folder / KERNELS, device)
    return StaticExecutable(
        bundle.plan, models, flat_program, fused_on=fused, captured_on={device.type}
    )


class FittedExecutable:
    """Each batch by what is fastest for its shape.

    Args:
        plain: runs any batch.
        executables: shapes and their backends.
        models: by the names the plan gives them.
        folder: of the compiled rounds.

    Attributes:
        failed: shapes whose compiled rounds did not load or run; the interpreter runs them.

    Raises:
        UsageError: no backend has the name that a shape says, or a shape has no compiled round.
        MissingCapabilityError: a compiled round is of another version.
    """

    def __init__(
        self,
        plain: Executable,
        executables: Executables,
        models: Mapping[str, Module],
        folder: Path,
    ) -> None:
        self.plain = plain
        self.sampling = executables.sampling
        self.backend_of = {
            Bucket(item.batch, item.text): item.backend for item in executables.shapes
        }
        self.compiled: dict[str, Executable] = {}
        self.shared = plain.shared
        self.failed: set[Bucket] = set()
        for name in sorted(set(self.backend_of.values())):
            if backend_capabilities(name).whole_rounds:
                buckets = [bucket for bucket, by in self.backend_of.items() if by == name]
                compiler = round_backend(name)
                made = compiler.compile(
                    plain.plan, models, folder, buckets, frozen=True, failed=self.failed
                )
                sampling = Sampling.named(self.sampling)
                check_packages(compiler, made, folder, sampling, buckets)
                made.shared = self.shared
                self.compiled[name] = made

    @property
    def plan(self) -> Plan:
        """What was compiled."""
        return self.plain.plan

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> Session:
        """Begin a batch; arguments and errors as in `Executable.start`."""
        return self._fitting(requests, capacity).start(requests, capacity)

    def forget(self) -> None:
        """See `Executable.forget`."""
        self.plain.forget()

    def _fitting(self, requests: Sequence[Request], capacity: int | None) -> Executable:
        """What runs a batch: that of the smallest shape which holds it."""
        if not requests or Sampling.of(SamplingSettings.of(requests)).word != self.sampling:
            return self.plain
        if any(request.grammar or request.images for request in requests):
            return self.plain
        bucket = bucket_for(requests, capacity, self.backend_of)
        if bucket in self.failed:
            return self.plain
        return self.compiled.get(self.backend_of.get(bucket, ""), self.plain)
