"""ONNX Runtime's C interface (onnxruntime_c_api.h), for what its Python package has no call.

The package's wheel brings the library; its functions are a table that only ever grows at its end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specplan.backends.onnxruntime.values import BFLOAT16

_VERSION = 16
"""Of the interface, ONNX Runtime 1.16: the first entries of later versions are the same."""
_PLACES = {
    "GetErrorCode": 1, "GetErrorMessage": 2, "CreateSessionOptions": 10,
    "SetSessionLogSeverityLevel": 22, "SetIntraOpNumThreads": 24, "SessionGetInputCount": 30,
    "SessionGetOutputCount": 31, "SessionGetOutputTypeInfo": 34, "SessionGetInputName": 36,
    "SessionGetOutputName": 37, "CreateTensorWithDataAsOrtValue": 49,
    "CastTypeInfoToTensorInfo": 55, "GetTensorElementType": 60, "GetDimensionsCount": 61,
    "GetDimensions": 62, "CreateCpuMemoryInfo": 69, "AllocatorFree": 76,
    "GetAllocatorWithDefaultOptions": 78, "ReleaseStatus": 93, "ReleaseSession": 95,
    "ReleaseValue": 96, "ReleaseTypeInfo": 98, "ReleaseSessionOptions": 100,
    "CreateEnvWithGlobalThreadPools": 119, "DisablePerSessionThreads": 120,
    "CreateThreadingOptions": 121, "ReleaseThreadingOptions": 122, "AddSessionConfigEntry": 130,
    "RunWithBinding": 133, "CreateIoBinding": 134, "ReleaseIoBinding": 135, "BindInput": 136,
    "BindOutput": 137,
    "SetGlobalIntraOpNumThreads": 147, "SetGlobalInterOpNumThreads": 148,
    "SetGlobalSpinControl": 149, "AddInitializer": 150, "SetGlobalDenormalAsZero": 155,
    "CreatePrepackedWeightsContainer": 166, "ReleasePrepackedWeightsContainer": 167,
    "CreateSessionWithPrepackedWeightsContainer": 168,
    "CreateSessionFromArrayWithPrepackedWeightsContainer": 169, "AddExternalInitializers": 210,
    "RegisterCustomOpsLibrary_V2": 228,
}  # fmt: skip
"""Places of functions in the table `OrtApi`, which only ever grows at its end."""
_ELEMENTS: dict[Any, int] = {
    np.float32: 1, np.uint8: 2, np.int32: 6, np.int64: 7, np.bool_: 9, np.float16: 10,
    np.float64: 11, BFLOAT16: 16,
}  # fmt: skip
"""Numbers of `ONNXTensorElementDataType` by the words of the Python package."""
_TYPES = {1: "tensor(float)", 7: "tensor(int64)", 11: "tensor(double)"}
"""Words of the Python package for those of reports."""
_ERRORS = (
    "", "Fail", "InvalidArgument", "NoSuchFile", "NoModel", "EngineError", "RuntimeException",
    "InvalidProtobuf", "ModelLoaded", "NotImplemented", "InvalidGraph", "EPFail",
)  # fmt: skip
"""Classes of the Python package by the numbers of `OrtErrorCode`."""
ERROR_LEVEL = 3
"""Of the log: errors alone."""


@dataclass(frozen=True)
class Port:
    """An input or output of a session; fields as of `onnxruntime.NodeArg`, -1 for free sizes."""

    name: str
    shape: tuple[int, ...] = ()
    type: str = ""


class Api:
    """The functions of one library, by name; those that can fail raise.

    Args:
        library: its file.
        threads: of the pool that all sessions share which want as many.

    Attributes:
        threads: see there.
    """

    def __init__(self, library: Path, threads: int) -> None:
        base = ctypes.CDLL(str(library)).OrtGetApiBase
        base.restype = POINTER(c_void_p)
        table = ctypes.CFUNCTYPE(c_void_p, c_uint32)(base()[0])(_VERSION)
        places = ctypes.cast(table, POINTER(c_void_p))
        # Without types of arguments ctypes passes each as the type that it has.
        self._functions = {n: ctypes.CFUNCTYPE(c_void_p)(places[i]) for n, i in _PLACES.items()}
        self._message = ctypes.CFUNCTYPE(c_char_p, c_void_p)(places[_PLACES["GetErrorMessage"]])
        self._code = ctypes.CFUNCTYPE(c_int, c_void_p)(places[_PLACES["GetErrorCode"]])
        self.threads = threads
        self._environment = self._made_environment()
        self._memory = self.make("CreateCpuMemoryInfo", c_int(0), c_int(0))
        self._allocator = self.make("GetAllocatorWithDefaultOptions")

    def _made_environment(self) -> c_void_p:
        """With one pool of threads, which wait for work awake, as those of a session do.

        Two pools would take the processor from each other, for as long as one waits.
        """
        options = self.make("CreateThreadingOptions")
        self.call("SetGlobalIntraOpNumThreads", options, c_int(self.threads))
        self.call("SetGlobalInterOpNumThreads", options, c_int(1))
        self.call("SetGlobalSpinControl", options, c_int(1))
        self.call("SetGlobalDenormalAsZero", options)
        try:
            return self.make(
                "CreateEnvWithGlobalThreadPools", c_int(ERROR_LEVEL), b"specplan", options
            )
        finally:
            self.release("ThreadingOptions")(options)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Args:
            name: of the function.
            arguments: bytes, None, and values of ctypes of the types that it declares.

        Raises:
            Exception: a class of ONNX Runtime's Python package, with what it says.
        """
        status = self._functions[name](*arguments)
        if status is None:
            return
        message = self._message(status).decode("utf-8", "replace")
        kind = _ERRORS[self._code(status)]
        self.release("Status")(c_void_p(status))
        from onnxruntime.capi import onnxruntime_pybind11_state as classes

        raise getattr(classes, kind)(message)

    def make(self, name: str, *arguments: Any) -> c_void_p:
        """What a function writes to its last argument; see `call`."""
        made = c_void_p()
        self.call(name, *arguments, byref(made))
        return made

    def release(self, kind: str) -> Callable[[c_void_p], None]:
        """The function that gives back an object of a kind."""
        return self._functions[f"Release{kind}"]

    def open(self, model: bytes | str, options: c_void_p, packed: c_void_p) -> c_void_p:
        """A session."""
        given: list[Any] = [str(model).encode()]
        name = "CreateSessionWithPrepackedWeightsContainer"
        if isinstance(model, bytes):
            name = "CreateSessionFromArrayWithPrepackedWeightsContainer"
            given = [model, c_size_t(len(model))]
        return self.make(name, self._environment, *given, options, packed)

    def value(
        self, _: str, device: str, index: int, kind: Any, shape: Sequence[int], pointer: int
    ) -> c_void_p:
        """A value on memory, with the arguments of `SessionIOBinding.bind_input`."""
        assert device == "cpu" and index == 0
        width = 2 if kind is BFLOAT16 else np.dtype(kind).itemsize
        return self.make(
            "CreateTensorWithDataAsOrtValue",
            self._memory,
            c_void_p(pointer),
            c_size_t(prod(shape) * width),
            (c_int64 * len(shape))(*shape),
            c_size_t(len(shape)),
            c_int(_ELEMENTS[kind]),
        )

    def count(self, function: str, owner: c_void_p) -> int:
        """How many of something an object has."""
        number = c_size_t()
        self.call(function, owner, byref(number))
        return number.value

    def name(self, function: str, session: c_void_p, number: int) -> str:
        """The name of an input or output."""
        text = self.make(function, session, c_size_t(number), self._allocator)
        name = ctypes.string_at(text).decode()
        self.call("AllocatorFree", self._allocator, text)
        return name

    def port(self, session: c_void_p, number: int) -> Port:
        """An output."""
        kind = self.make("SessionGetOutputTypeInfo", session, c_size_t(number))
        try:
            tensor, element = c_void_p(), c_int()
            self.call("CastTypeInfoToTensorInfo", kind, byref(tensor))
            self.call("GetTensorElementType", tensor, byref(element))
            sizes = (c_int64 * self.count("GetDimensionsCount", tensor))()
            self.call("GetDimensions", tensor, sizes, c_size_t(len(sizes)))
        finally:
            self.release("TypeInfo")(kind)
        name = self.name("SessionGetOutputName", session, number)
        return Port(name, tuple(sizes), _TYPES.get(element.value, ""))


@cache
def api() -> Api:
    """The functions; `library` has to be there."""
    path = library()
    assert path is not None
    return Api(path, torch.get_num_threads())


@cache
def library() -> Path | None:
    """The library's file in the installed package; None where its wheel brings none."""
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent / "capi"
    path = folder / f"libonnxruntime.so.{onnxruntime.__version__}"
    return path if path.is_file() else None
