"""Tensors of torch as values of ONNX Runtime, on their own memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SMALLEST, _ONE = 5e-324, 1.0
BFLOAT16 = 16
"""`TensorProto.BFLOAT16`; numpy has no such type."""
_TYPES: dict[torch.dtype, Any] = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.bfloat16: BFLOAT16,
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


def elsewhere(name: str, tensor: Tensor) -> Any:
    """An initializer of a graph whose data a session is given by name."""
    from onnx import TensorProto, helper

    kind = _TYPES[tensor.dtype]
    number = kind if kind == BFLOAT16 else helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    proto = TensorProto(name=name, dims=tensor.shape, data_type=number)
    proto.data_location = TensorProto.EXTERNAL
    size = str(tensor.numel() * tensor.element_size())
    for key, value in (("location", "memory"), ("offset", "0"), ("length", size)):
        proto.external_data.add(key=key, value=value)
    return proto


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


def unbound() -> None:
    """What is bound before anything is, as a dead reference gives it."""


def run_bound(session: Any, binding: Any) -> None:
    """Run a session on what is bound."""
    with denormals_as_zero():
        session.run_with_iobinding(binding)
