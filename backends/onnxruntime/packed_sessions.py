"""Sessions on the CPU that share packed matrices and threads.

A session packs its matrices into a form of its kernels. Sessions that are opened with one container
have one packed copy together (`CreatePrepackedWeightsContainer`), where one of the Python package
has a copy of its own. They share a pool of threads as well, unless torch's number of threads has
changed since the first one was opened.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

from specplan.backends.onnxruntime.c_api import ERROR_LEVEL, Port, api, library
from specplan.backends.onnxruntime.cpu_kernels.building import kernels
from specplan.backends.onnxruntime.cpu_kernels.rewriting import Tiles, with_own_kernels
from specplan.backends.onnxruntime.values import bind

_SHARED = (torch.uint8, torch.bfloat16, torch.float16, torch.float32)
"""Number types of matrices, which sessions read where they are."""


class PackedWeights:
    """Packed matrices of the sessions that are opened with it; they live as long as one of these.

    Attributes:
        tiles: of the weights that kernels of our own read.

    Raises:
        Exception: of ONNX Runtime.
    """

    def __init__(self) -> None:
        calls = api()
        self.tiles = Tiles()
        self.handle = calls.make("CreatePrepackedWeightsContainer")
        finalize(self, calls.release("PrepackedWeightsContainer"), self.handle)


def can_share() -> bool:
    """Whether the installed package brings the library."""
    return library() is not None


class PackedSession:
    """A session of the CPU provider, with the methods of `InferenceSession` that are used here.

    Args:
        model: its bytes, or its path.
        weights: by the names of the model's initializers; used where they are.
        packed: gets and gives the packed forms of matrices.
        entries: of its configuration.

    Raises:
        Exception: of ONNX Runtime, as its Python package raises them.
    """

    def __init__(
        self,
        model: bytes | str,
        weights: Mapping[str, Tensor],
        packed: PackedWeights,
        entries: Mapping[str, str],
    ) -> None:
        calls, own = api(), kernels()
        self._api = calls
        if own is not None:
            code = model if isinstance(model, bytes) else Path(model).read_bytes()
            model, weights = with_own_kernels(code, weights, packed.tiles)
        self._weights = {name: one.contiguous() for name, one in weights.items()}
        options = calls.make("CreateSessionOptions")
        values: dict[str, c_void_p] = {}
        for name, weight in self._weights.items():
            bind(lambda *memory: values.update({memory[0]: calls.value(*memory)}), name, weight)
        try:
            calls.call("SetSessionLogSeverityLevel", options, c_int(ERROR_LEVEL))
            if torch.get_num_threads() == calls.threads:
                calls.call("DisablePerSessionThreads", options)
            else:
                calls.call("SetIntraOpNumThreads", options, c_int(torch.get_num_threads()))
            if own is not None:
                calls.call("RegisterCustomOpsLibrary_V2", options, str(own).encode())
            for key, entry in entries.items():
                calls.call("AddSessionConfigEntry", options, key.encode(), entry.encode())
            names = (c_char_p * len(values))(*(name.encode() for name in values))
            handles = (c_void_p * len(values))(*(one.value for one in values.values()))
            calls.call("AddExternalInitializers", options, names, handles, c_size_t(len(values)))
            for name, weight in self._weights.items():
                if weight.dtype in _SHARED and weight.dim() > 1:
                    calls.call("AddInitializer", options, name.encode(), values[name])
            self.handle = calls.open(model, options, packed.handle)
        finally:
            for one in values.values():
                calls.release("Value")(one)
            calls.release("SessionOptions")(options)
            _trim()
        # The packed matrices are given back after the session that reads them.
        finalize(self, _give_back, calls.release("Session"), self.handle, packed, self._weights)

    def get_inputs(self) -> list[Port]:
        """All inputs, by name alone."""
        count = self._api.count("SessionGetInputCount", self.handle)
        names = (self._api.name("SessionGetInputName", self.handle, n) for n in range(count))
        return [Port(name) for name in names]

    def get_outputs(self) -> list[Port]:
        """All outputs."""
        return [
            self._api.port(self.handle, number)
            for number in range(self._api.count("SessionGetOutputCount", self.handle))
        ]

    def io_binding(self) -> PackedBinding:
        """See `InferenceSession.io_binding`."""
        return PackedBinding(self)

    def run_with_iobinding(self, binding: PackedBinding) -> None:
        """See `InferenceSession.run_with_iobinding`."""
        self._api.call("RunWithBinding", self.handle, None, binding.handle)


class PackedBinding:
    """Memory of a session's inputs and outputs; see `SessionIOBinding`."""

    def __init__(self, session: PackedSession) -> None:
        calls = self._api = api()
        self.handle = calls.make("CreateIoBinding", session.handle)
        finalize(self, _give_back, calls.release("IoBinding"), self.handle, session)

    def bind_input(self, name: str, *memory: Any) -> None:
        """Let an input be memory on the CPU, as `bind` describes it."""
        self._bind("BindInput", name, *memory)

    def bind_output(self, name: str, *memory: Any) -> None:
        """Let an output be written to memory on the CPU, as `bind` describes it."""
        self._bind("BindOutput", name, *memory)

    def _bind(self, function: str, name: str, *memory: Any) -> None:
        value = self._api.value(name, *memory)
        try:
            self._api.call(function, self.handle, name.encode(), value)
        finally:
            self._api.release("Value")(value)


def _give_back(release: Callable[[c_void_p], None], handle: c_void_p, *_: object) -> None:
    """Release a handle before the objects that it was made of."""
    release(handle)


def _trim() -> None:
    """Give the system what was packed, and thrown away for another session's copy."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc, which would hold on to it
    if trim is not None:
        trim(c_size_t(0))
