"""Tensors of torch as values of ONNX Runtime, on their own memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


def shared(weight: Tensor) -> Any:
    """A value of ONNX Runtime on a weight's own memory."""
    from onnxruntime import OrtValue

    if weight.device.type != "cpu":  # initializers are taken from the host
        weight = weight.cpu()
    if weight.dtype == torch.bfloat16:
        halves = weight.contiguous().view(torch.int16).numpy()
        return OrtValue.ortvalue_from_numpy_with_onnx_type(halves, _BFLOAT16)
    return OrtValue.ortvalue_from_numpy(weight.contiguous().numpy())
