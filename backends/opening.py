"""What runs a bundle: its compiled rounds where a batch fits them, else the interpreter."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from specplan.backends.bundle import Bundle
from specplan.backends.executables import FOLDER, Executables, Machine
from specplan.backends.registry import get_backend
from specplan.backends.static.buckets import Bucket, Sampling
from specplan.ir.plan import Plan
from specplan.runtime.executable import Executable, Session
from specplan.runtime.models import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings


def this_machine() -> Machine:
    """What native code depends on, here."""
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        torch=".".join(torch.__version__.split(".")[:2]),
    )


def open_executable(bundle: Bundle, models: Mapping[str, CausalModel]) -> Executable:
    """What runs a bundle's plan.

    Args:
        bundle: checked.
        models: by the names the plan gives them.

    Raises:
        MissingCapabilityError: the bundle's executables do not run here; nothing was loaded.
        UsageError: the models do not fit the plan.
    """
    plain: Executable = get_backend(bundle.backend).compile(bundle.plan, models)
    held = bundle.executables
    if held is None:
        return plain
    held.machine.require(this_machine(), str(bundle.folder))
    return FittedExecutable(plain, held, models, bundle.folder / FOLDER)


class FittedExecutable:
    """Each batch by what is fastest for its shape.

    Args:
        plain: runs any batch.
        held: shapes and their backends.
        models: by the names the plan gives them.
        folder: of the compiled rounds.
    """

    def __init__(
        self,
        plain: Executable,
        held: Executables,
        models: Mapping[str, CausalModel],
        folder: Path,
    ) -> None:
        from specplan.backends.inductor.backend import InductorBackend

        self.plain = plain
        self.held = held
        buckets = [Bucket(s.batch, s.text) for s in held.shapes if s.backend == "inductor"]
        self.buckets = buckets
        self.compiled = InductorBackend().compile(plain.plan, models, folder, buckets, frozen=True)

    @property
    def plan(self) -> Plan:
        """What was compiled."""
        return self.plain.plan

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> Session:
        """Begin a batch; arguments and errors as in `Executable.start`."""
        if not requests or not self._fits(requests, capacity):
            return self.plain.start(requests, capacity)
        return self.compiled.start(requests, capacity)

    def _fits(self, requests: Sequence[Request], capacity: int | None) -> bool:
        text = max(len(item.prompt_tokens) + item.max_new_tokens for item in requests)
        holds = any(
            bucket.holds(len(requests), max(text, capacity or 0)) for bucket in self.buckets
        )
        return holds and Sampling.of(SamplingSettings.of(requests)).word == self.held.sampling
