"""Tensors of torch as values of ONNX Runtime, on their own memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SMALLEST, _ONE = 5e-324, 1.0
_BFLOAT16 = 16
"""`TensorProto.BFLOAT16`; numpy has no such type."""
_TYPES: dict[torch.dtype, Any] = {
    torch.bool: np.bool_,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.bfloat16: _BFLOAT16,
}


def bind(side: Callable[..., None], name: str, tensor: Tensor) -> None:
    """Give an input or output the memory of a contiguous tensor.

    Args:
        side: `bind_input` or `bind_output` of an I/O binding.
        name: of the input or output.
        tensor: has to outlive the run.
    """
    assert tensor.is_contiguous(), f"{name} is a view"
    device, kind = tensor.device, _TYPES[tensor.dtype]
    side(name, device.type, device.index or 0, kind, list(tensor.shape), tensor.data_ptr())


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Take numbers that are too small for the number type as 0, in this thread.

    Far from a query's own place attention has such weights, and a processor multiplies them some
    fifty times as slowly. The mode comes back as it was: other code counts on such numbers.
    """
    before = _SMALLEST * _ONE == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def run_bound(session: Any, binding: Any) -> None:
    """Run a session on what is bound."""
    with denormals_as_zero():
        session.run_with_iobinding(binding)


def session_options() -> Any:
    """Options of every session: as many threads as torch has, and only errors are logged.

    The session's own threads take denormal numbers as 0.
    """
    from onnxruntime import SessionOptions

    options = SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return options


def open_session(model: bytes | str, options: Any, providers: Sequence[Any]) -> Any:
    """A session; the first one of a process would leave this thread in its own mode."""
    from onnxruntime import InferenceSession

    with denormals_as_zero():
        return InferenceSession(model, options, providers=providers, enable_fallback=0)


def shared(weight: Tensor) -> Any:
    """A value of ONNX Runtime on a weight's own memory."""
    from onnxruntime import OrtValue

    if weight.device.type != "cpu":  # initializers are taken from the host
        weight = weight.cpu()
    if weight.dtype == torch.bfloat16:
        halves = weight.contiguous().view(torch.int16).numpy()
        return OrtValue.ortvalue_from_numpy_with_onnx_type(halves, _BFLOAT16)
    return OrtValue.ortvalue_from_numpy(weight.contiguous().numpy())
