"""What machine this is, and which software measures."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("specplan", "torch", "transformers", "numpy")


def hardware_name() -> str:
    """Name of the processor, and how many logical cores this process may use."""
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()} ({cores} cores)"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            fields = [line.split(":", 1) for line in file if ":" in line]
    except OSError:
        return platform.processor() or platform.machine()
    known = {key.strip(): value.strip() for key, value in reversed(fields)}
    return known.get("model name") or platform.machine()


def memory_bytes() -> float:
    """Physical memory of this machine, bytes."""
    import psutil

    return float(psutil.virtual_memory().total)


def versions() -> dict[str, str]:
    """Versions of what takes part in a measurement."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
