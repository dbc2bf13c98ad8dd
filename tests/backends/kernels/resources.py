"""What built kernels take of a processor: registers, spilled bytes, shared memory.

Read by cuobjdump, which the wheel of triton brings along; no GPU is needed.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from specplan.backends.kernels.kernel_folder import Built

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")

Figures = dict[str, int]
"""Per kernel: `registers` per thread, `spilled_bytes` per thread, `shared_bytes` per program."""


def figures_of(built: Built) -> Figures:
    """The figures of one kernel.

    What ptxas spills stands in the thread's stack frame; our kernels keep nothing else there.

    Raises:
        subprocess.CalledProcessError: cuobjdump cannot read the cubin.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.cubin)
        file.flush()
        done = subprocess.run(
            [str(tool("cuobjdump")), "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        )
    (usage,) = _USAGE.findall(done.stdout)
    registers, stack, shared, local = map(int, usage)
    return {
        "registers": registers,
        "spilled_bytes": stack + local,
        "shared_bytes": built.kernel.shared_bytes or shared,
    }


def table_of(kernels: Iterable[Built]) -> dict[str, dict[str, Figures]]:
    """Figures by architecture and name."""
    table: dict[str, dict[str, Figures]] = {}
    for built in kernels:
        table.setdefault(built.kernel.arch, {})[built.kernel.name] = figures_of(built)
    return table


def tool(name: str) -> Path:
    """A program of CUDA's that the wheel of triton brings along."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
