"""Code for a GPU, loaded and launched through the CUDA driver (libcuda), by ctypes.

The driver's functions and numbers are those of NVIDIA's CUDA Driver API (docs.nvidia.com/cuda/
cuda-driver-api: module management, execution control). A context must be current: torch makes one
as soon as a tensor is on the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from specplan.ir.errors import MissingCapabilityError

_MOST_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_USUAL_SHARED = 48 * 1024
"""Bytes of dynamic shared memory that a launch may have without being asked for."""
_NUMBERS: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


class Driver:
    """The driver of this machine.

    Raises:
        MissingCapabilityError: there is none.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise MissingCapabilityError(
                f"the CUDA driver cannot be loaded ({error})",
                remedy="Kernels that were built ahead of time run on an NVIDIA GPU only.",
            ) from error

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            MissingCapabilityError: it gives an error; with its number.
        """
        code = getattr(self._library, name)(*arguments)
        if code:
            raise MissingCapabilityError(
                f"the CUDA driver's {name} gave error {code}",
                remedy="Build the kernels for this device: specplan kernels build --arch sm_NN.",
            )

    def load(self, cubin: bytes, name: str, shared_bytes: int) -> Function:
        """A function of a cubin.

        Args:
            cubin: the code.
            name: its symbol.
            shared_bytes: dynamic shared memory of a launch.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared_bytes > _USUAL_SHARED:
            self.call("cuFuncSetAttribute", function, _MOST_DYNAMIC_SHARED, shared_bytes)
        return Function(self, function, shared_bytes)


class Function:
    """One function on a device.

    Args:
        driver: of the device.
        handle: of the function; its module stays loaded as long as the process.
        shared_bytes: dynamic shared memory of a launch.
    """

    def __init__(self, driver: Driver, handle: ctypes.c_void_p, shared_bytes: int) -> None:
        self._driver = driver
        self._handle = handle
        self._shared_bytes = shared_bytes

    def launch(
        self,
        grid: tuple[int, ...],
        threads: int,
        types: Sequence[str],
        arguments: Sequence[Any],
        stream: int,
    ) -> None:
        """Launch it.

        Args:
            grid: programs, up to three numbers.
            threads: per program.
            types: of the arguments, in triton's words.
            arguments: tensors and numbers.
            stream: handle of a CUDA stream.
        """
        values = packed(types, arguments)
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        sizes = [*grid, 1, 1][:3]
        self._driver.call(
            "cuLaunchKernel", self._handle, *sizes, threads, 1, 1, self._shared_bytes,
            ctypes.c_void_p(stream), places, None,
        )  # fmt: skip


def packed(types: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
    """Values as the driver takes them: pointers of tensors, numbers, and two null pointers.

    The last two are the scratch memory and the profile that triton's kernels have and ours leave
    alone.

    Args:
        types: of the arguments, in triton's words.
        arguments: tensors and numbers.
    """
    values = [
        ctypes.c_void_p(given.data_ptr()) if kind.startswith("*") else _NUMBERS[kind](given)
        for kind, given in zip(types, arguments, strict=True)
    ]
    return [*values, ctypes.c_void_p(), ctypes.c_void_p()]
