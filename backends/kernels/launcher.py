"""Kernels by name: one that was built ahead of time where such are loaded, else triton compiles it.

A loaded kernel serves a launch when its types, alignment and constants fit; what it can hold may be
more than what is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from specplan.backends.kernels.driver import Driver, Function
from specplan.backends.kernels.kernel_folder import Built, BuiltKernel, read_kernels
from specplan.backends.kernels.variants import MODULES
from specplan.ir.errors import MissingCapabilityError

_ROOM = frozenset({"BLOCK_NODES", "BLOCK_V", "BLOCK_SPLITS", "BLOCK_MOVES"})
"""Constants that say how much a kernel can hold: more does no harm."""
_TYPES = {
    torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32",
    torch.float64: "*fp64", torch.int32: "*i32", torch.int64: "*i64", torch.bool: "*i1",
}  # fmt: skip


class LoadedKernels:
    """Kernels built ahead of time, loaded onto one of this machine's devices.

    Args:
        driver: of the device.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._functions: dict[str, Function] = {}
        self._kernels: list[BuiltKernel] = []

    def add(self, kernels: Iterable[Built]) -> None:
        """Load those whose code is not there yet.

        Args:
            kernels: for the device's architecture.
        """
        for kernel, cubin in kernels:
            if kernel.sha256 not in self._functions:
                function = self._driver.load(cubin, kernel.function, kernel.shared_bytes)
                self._functions[kernel.sha256] = function
                self._kernels.append(kernel)

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        arguments: Sequence[Any],
        constants: Mapping[str, int],
    ) -> bool:
        """Launch a kernel on the current stream, if one fits.

        Returns:
            Whether one does.
        """
        kernel = fitting(self._kernels, name, arguments, constants)
        if kernel is None:
            return False
        function = self._functions[kernel.sha256]
        types = [kind for _, kind in kernel.signature]
        stream = torch.cuda.current_stream().cuda_stream
        function.launch(grid, 32 * kernel.num_warps, types, arguments, stream)
        return True


def fitting(
    kernels: Iterable[BuiltKernel],
    name: str,
    arguments: Sequence[Any],
    constants: Mapping[str, int],
) -> BuiltKernel | None:
    """The smallest kernel that serves a launch; None when there is none.

    Args:
        kernels: to choose from.
        name: of the function.
        arguments: in the order of its signature: tensors and numbers.
        constants: the others; those that kernels do not know (warps, stages) count for nothing.
    """
    serving = [
        kernel for kernel in kernels if kernel.function == name and _serves(kernel, constants)
    ]
    serving = [kernel for kernel in serving if _takes(kernel, arguments)]
    return min(serving, key=lambda kernel: sorted(kernel.constants.items()), default=None)


def _serves(kernel: BuiltKernel, constants: Mapping[str, int]) -> bool:
    return all(
        constants[key] <= limit if key in _ROOM else constants[key] == limit
        for key, limit in kernel.constants.items()
    )


def _takes(kernel: BuiltKernel, arguments: Sequence[Any]) -> bool:
    if len(arguments) != len(kernel.signature):
        return False
    for (name, kind), given in zip(kernel.signature, arguments, strict=True):
        pointer = isinstance(given, Tensor)
        if pointer != kind.startswith("*") or (pointer and _TYPES.get(given.dtype) != kind):
            return False
        place = given.data_ptr() if pointer else given
        if name in kernel.aligned and place % 16:
            return False
    return True


_loaded: dict[int | None, LoadedKernels] = {}
"""By the number of their device; what another bundle loaded there stays."""


def loaded(device: torch.device) -> bool:
    """Whether kernels that were built ahead of time are on a device."""
    return device.index in _loaded


def architecture_of(device: torch.device) -> str:
    """The architecture of a CUDA device, such as sm_90."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def load_kernels(folder: Path, device: torch.device) -> None:
    """Use the kernels of a folder from now on, beside those loaded before, in all of this process.

    Args:
        folder: as `build_kernels` writes it.
        device: a CUDA device.

    Raises:
        UsageError: the folder is not as it was written; names the file.
        MissingCapabilityError: it holds nothing for the device's architecture, or the device's
            driver does not take the kernels.
    """
    kernels = read_kernels(folder, architecture_of(device))
    number = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(number):
        there = _loaded.get(number) or LoadedKernels(Driver())
        there.add(kernels.values())
    _loaded[number] = there


def launch(name: str, grid: tuple[int, ...], *arguments: Any, **constants: int) -> None:
    """Launch a kernel; on tensors without numbers, those of a trace, there is nothing to do.

    Args:
        name: of its function.
        grid: programs.
        arguments: tensors and numbers, in the order of the kernel's own.
        constants: what is fixed when it is built, and `num_warps` and `num_stages`.

    Raises:
        MissingCapabilityError: nothing that is loaded fits, and triton is not installed.
    """
    tensors = [item for item in arguments if isinstance(item, Tensor)]
    kinds = {type(item) for item in tensors}
    if kinds == {FakeTensor}:
        return
    there = _loaded.get(tensors[0].device.index) if kinds == {Tensor} else None
    if there is not None and there.launch(name, grid, arguments, constants):
        return
    _compiled(name)[grid](*arguments, **constants)


def _compiled(name: str) -> Any:
    """A kernel that tracers see; interpreted ones are launched as they are."""
    try:
        from triton.runtime.jit import JITFunction
    except ImportError as error:
        raise MissingCapabilityError(
            f"{name} on a CUDA device needs triton, which is not installed",
            remedy="Install it with: pip install 'specplan[triton]'",
        ) from error
    kernel = getattr(importlib.import_module(f"specplan.backends.kernels.{MODULES[name]}"), name)
    return torch.library.wrap_triton(kernel) if isinstance(kernel, JITFunction) else kernel
