"""Hardware is named by what the system itself says of it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from specplan.measure.machine import hardware_name, memory_bytes, versions

pytest.importorskip("cpuinfo")
pytest.importorskip("psutil")


def test_the_processor_is_named() -> None:
    name = hardware_name()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert name.endswith(f"({cores} cores)") and not name.startswith("(")
    described = Path("/proc/cpuinfo")
    if described.is_file() and "model name" in described.read_text():
        models = [line for line in described.read_text().splitlines() if "model name" in line]
        assert name.split(" (")[0] in models[0]


def test_memory_is_that_of_the_machine() -> None:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        assert memory_bytes() == pytest.approx(pages * size, rel=0.01)
    assert memory_bytes() > 2**28


def test_versions_name_what_measures() -> None:
    by_name = versions()
    assert by_name["python"] == platform.python_version() and "specplan" in by_name


@pytest.mark.gpu
def test_an_accelerator_is_named_by_the_driver() -> None:
    torch = pytest.importorskip("torch")
    device = torch.device("cuda", 0)
    properties = torch.cuda.get_device_properties(0)
    name = properties.name
    assert set(name.split()) & set(hardware_name(device).split())
    assert memory_bytes(device) == pytest.approx(properties.total_memory, rel=0.05)
