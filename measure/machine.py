"""This machine and the software that measures."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_PACKAGES = ("specplan", "torch", "transformers", "numpy")


def hardware_name(device: torch.device | None = None) -> str:
    """Name of the device that runs models: an accelerator, or the processor and its cores.

    Args:
        device: where the models are; None for the processor.
    """
    if device is not None and device.type == "cuda":
        return _nvml(device.index or 0)[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()} ({cores} cores)"


def memory_bytes(device: torch.device | None = None) -> float:
    """Memory of the accelerator, or physical memory of the machine, bytes.

    Args:
        device: where the models are; None for the processor.
    """
    if device is not None and device.type == "cuda":
        return _nvml(device.index or 0)[1]
    import psutil

    return float(psutil.virtual_memory().total)


def versions() -> dict[str, str]:
    """Versions of the software in a measurement."""
    installed = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


@lru_cache(maxsize=1)
def _processor() -> str:
    """The processor's own name, by py-cpuinfo (CPUID, sysctl, registry)."""
    from cpuinfo import get_cpu_info

    info = get_cpu_info()
    return str(info.get("brand_raw") or info.get("arch_string_raw") or platform.machine())


def _nvml(index: int) -> tuple[str, float]:
    """Name and memory of a CUDA device by the driver; by torch without `nvidia-ml-py`.

    NVML numbers devices by bus, torch by CUDA_VISIBLE_DEVICES: the UUID identifies one in both.
    """
    import torch

    properties: Any = torch.cuda.get_device_properties(index)
    try:
        import pynvml
    except ImportError:
        return str(properties.name), float(properties.total_memory)
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
        return str(pynvml.nvmlDeviceGetName(handle)), float(memory)
    except pynvml.NVMLError:  # e.g. a MIG slice, which has no handle of this kind
        return str(properties.name), float(properties.total_memory)
    finally:
        pynvml.nvmlShutdown()
