"""ONNX for torch ops that the exporter has no translation for, or has a costly one.

A translation gets ONNX values for tensors and Python values for everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

INT64 = 7
"""Of `TensorProto`."""


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """By torch op; onnxscript is imported here."""
    import onnx_ir
    from onnxscript.function_libs.torch_lib.ops import core
    from onnxscript.onnx_opset import opset18

    op: Any = opset18  # typed for eager values, not for those of a graph that is being made

    def searchsorted(
        ordered: Any, values: Any, *, right: bool = False, side: str | None = None, **_: Any
    ) -> Any:
        """How many of `ordered` `[..., N]` are below (or not above) each of `values` `[..., M]`."""
        last = op.Constant(value_ints=[-1])
        bounds = op.Unsqueeze(ordered, op.Constant(value_ints=[-2]))
        before = op.LessOrEqual if right or side == "right" else op.Less
        below = before(bounds, op.Unsqueeze(values, last))
        return op.ReduceSum(op.Cast(below, to=INT64), last, keepdims=0)

    def stable_sort(
        values: Any, *, stable: bool = True, dim: int = -1, descending: bool = False
    ) -> Any:
        """`TopK` of all: ONNX puts the lower index first among equals."""
        axis = dim % len(values.shape)
        size = op.Shape(values, start=axis, end=axis + 1)
        return op.TopK(values, size, axis=dim, largest=int(descending), sorted=1)

    def index_put(given: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
        """`ScatterND` where indices of one shape name the first dimensions: no transposition."""
        if accumulate or len({None if i is None else tuple(i.shape) for i in indices}) > 1:
            return core.aten_index_put(given, indices, values, accumulate)
        last = op.Constant(value_ints=[-1])
        return op.ScatterND(
            given, op.Concat(*(op.Unsqueeze(index, last) for index in indices), axis=-1), values
        )

    def full(size: Any, value: Any, dtype: int | None = None, **_: Any) -> Any:
        """A constant of the very type: cast from float32, the smallest float64 is no number."""
        kind = None if dtype is None else onnx_ir.DataType(dtype)
        one = op.Constant(value=onnx_ir.tensor(value, dtype=kind))
        if not isinstance(size, Sequence) or not all(isinstance(n, int) for n in size):
            return op.Expand(one, size)
        return op.Expand(one, op.Constant(value_ints=list(size))) if size else one

    def linear(given: Any, weight: Any, bias: Any = None) -> Any:
        """One `Gemm` whatever the rank: the weight stays as the checkpoint has it."""
        if len(given.shape) == 2:
            return op.Gemm(given, weight, bias, transB=1)
        flat = op.Reshape(given, op.Constant(value_ints=[-1, given.shape[-1]]))
        width = op.Constant(value_ints=[weight.shape[0]])
        shape = op.Concat(op.Shape(given, start=0, end=-1), width, axis=0)
        return op.Reshape(op.Gemm(flat, weight, bias, transB=1), shape)

    def where(flag: Any, chosen: Any, other: Any) -> Any:
        """Of truths by `And` and `Or`: ONNX Runtime has no `Where` of them."""
        if chosen.dtype != onnx_ir.DataType.BOOL:
            return op.Where(flag, chosen, other)
        return op.Or(op.And(flag, chosen), op.And(op.Not(flag), other))

    return {
        torch.ops.aten.where.self: where,
        torch.ops.aten.searchsorted.Tensor: searchsorted,
        torch.ops.aten.sort.stable: stable_sort,
        torch.ops.aten.index_put.default: index_put,
        torch.ops.aten.full.default: full,
        torch.ops.aten.linear.default: linear,
    }
