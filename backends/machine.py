"""This machine, and whether a bundle runs on it: checked before anything is loaded."""

from __future__ import annotations

import platform
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import torch

from specplan.backends.bundle import Bundle
from specplan.backends.kernels.fused_parts import Heads
from specplan.backends.kernels.kernel_folder import homes_of, read_index
from specplan.backends.kernels.launcher import architecture_of
from specplan.backends.kernels.plan_kernels import heads_of, lacking
from specplan.backends.manifest import KERNELS, Machine, Shape
from specplan.backends.registry import backend_capabilities
from specplan.backends.static.graph_capabilities import UNCOMPILED
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import cache_formats
from specplan.ir.errors import MissingCapabilityError

_CPU_INFO = Path("/proc/cpuinfo")
_FLAGS = re.compile(r"^(flags|Features)\s*:(.*)$", re.MULTILINE)
_EMITTED = re.compile(
    r"sse|ssse|avx|amx|apx|fma|bmi|pni$|cx16$|popcnt$|abm$|movbe$|f16c$|gfni$|xop$|tbm$|lahf_lm$"
)
"""Flags of x86 (Linux, Documentation/arch/x86/cpuinfo) for instructions that compilers choose by
themselves where they compile for the machine that they are on."""


def this_machine() -> Machine:
    """What native code depends on, here."""
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        torch=_minor(torch.__version__),
        onnxruntime=_minor(onnxruntime_version()),
        features=features(),
    )


def _minor(words: str) -> str:
    """Major and minor part of a version."""
    return ".".join(words.split(".")[:2])


@cache
def onnxruntime_version() -> str:
    """Version of the module, which several distributions bring; empty where there is none."""
    try:
        return str(import_module("onnxruntime").__version__)
    except ImportError:
        return ""


@cache
def features() -> tuple[str, ...]:
    """The instruction sets of this machine's processor; none where they are not listed."""
    try:
        return features_in(_CPU_INFO.read_text(encoding="utf-8"))
    except OSError:  # no Linux: the system tells machines apart
        return ()


def features_in(cpu_info: str) -> tuple[str, ...]:
    """The instruction sets that compilers use of a processor, sorted.

    Args:
        cpu_info: /proc/cpuinfo; where processors differ, those that all of them have.
    """
    processors = [(kind, set(names.split())) for kind, names in _FLAGS.findall(cpu_info)]
    if not processors:
        return ()
    shared = set.intersection(*(names for _, names in processors))
    if processors[0][0] == "Features":  # of Arm: all of them are instructions
        return tuple(sorted(shared))
    return tuple(sorted(name for name in shared if _EMITTED.match(name)))


def check_machine(bundle: Bundle, device: str | torch.device = "cpu") -> None:
    """Refuse a machine that a bundle's executables or kernels do not run on; loads nothing.

    Args:
        bundle: checked.
        device: that its models will be on.

    Raises:
        MissingCapabilityError: says in what this machine differs, or which kernel is missing.
        UsageError: the list of kernels is not as it was written.
    """
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise MissingCapabilityError("there is no CUDA device", remedy="Run it on the CPU.")
    if place.type == "cuda" and bundle.kernels and not UNCOMPILED.refusals(bundle.plan):
        check_kernels(bundle, architecture_of(place))
    made = bundle.executables
    if place.type == "cpu" and made is not None and any(map(_is_compiled, made.shapes)):
        made.machine.require(this_machine(), str(bundle.folder))


def _is_compiled(shape: Shape) -> bool:
    """Whether something runs it that was compiled: the interpreter runs anywhere."""
    return backend_capabilities(shape.backend).whole_rounds


def bundle_heads(bundle: Bundle) -> dict[str, Heads]:
    """What kernels depend on of the models of a bundle, by role, if they read their caches."""
    others = cache_formats(bundle.problem)
    return {
        name: heads_of(ModelShape.from_path(bundle.model_folder(name), dtype=reference.dtype))
        for name, reference in bundle.models.items()
        if name not in others
    }


def check_kernels(bundle: Bundle, arch: str) -> None:
    """Refuse a bundle whose kernels are for other devices, or are those of an older version.

    Args:
        bundle: checked, with kernels.
        arch: of the device.

    Raises:
        UsageError: the list of kernels is not as it was written.
        MissingCapabilityError: some are missing; names one.
    """
    folder = bundle.folder / KERNELS
    homes_of(read_index(folder), arch, folder)
    missing = lacking(folder, bundle.plan, bundle_heads(bundle), arch)
    if missing:
        raise MissingCapabilityError(
            f"the bundle's kernels lack {missing[0]}",
            where=str(folder),
            remedy=f"Build them again: specplan compile {bundle.folder} --cubins {arch}",
        )
