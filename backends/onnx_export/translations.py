"""ONNX for torch ops that the exporter has no translation for, or has a costly one.

A translation gets ONNX values for tensors and Python values for everything else. This module loads
onnxscript; import it only where a round is exported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnx_ir
import torch
from onnxscript.function_libs.torch_lib.ops import core
from onnxscript.onnx_opset import opset18
from onnxscript.values import Opset

from specplan.backends.onnx_export.quantized import quantized_product
from specplan.backends.static.traced import joined_attention as _joined  # noqa: F401  (registers the op)

INT64 = 7
"""The element type in ONNX's `TensorProto`."""
INT32 = 6
op: Any = opset18  # typed for eager values, not for those of a graph under construction


def _own_ops() -> Any:
    """ONNX Runtime's own op set, as far as it is written here; onnx knows none of its schemas."""
    schema, domain = onnx.defs.OpSchema, "com.microsoft"
    if not onnx.defs.has("GroupQueryAttention", 1, domain):
        names = "query key value past_key past_value seqlens_k total_sequence_length cos_cache"
        names += " sin_cache position_ids attention_bias"
        kinds = {"seqlens_k": "M", "total_sequence_length": "M", "position_ids": "I"}
        given, floats = schema.FormalParameterOption.Optional, ["tensor(float)", "tensor(float16)"]
        onnx.defs.register_schema(
            schema(
                "GroupQueryAttention",
                domain,
                1,
                inputs=[
                    schema.FormalParameter(name, kinds.get(name, "T"), "", param_option=given)
                    for name in names.split()
                ],
                outputs=[
                    schema.FormalParameter(name, "T", "")
                    for name in ("output", "present_key", "present_value")
                ],
                type_constraints=[
                    ("T", floats, ""), ("M", ["tensor(int32)"], ""), ("I", ["tensor(int64)"], "")
                ],
                attributes=[
                    schema.Attribute(name, kind, "", required=False)
                    for name, kind in (
                        ("num_heads", schema.AttrType.INT),
                        ("kv_num_heads", schema.AttrType.INT),
                        ("do_rotary", schema.AttrType.INT),
                        ("scale", schema.AttrType.FLOAT),
                    )
                ],
            )
        )  # fmt: skip
    if not onnx.defs.has("MatMulNBits", 1, domain):
        kinds = {"A": "T1", "B": "T2", "scales": "T1"}
        numbers = ("K", "N", "bits", "block_size", "accuracy_level")
        onnx.defs.register_schema(
            schema(
                "MatMulNBits",
                domain,
                1,
                inputs=[schema.FormalParameter(name, kind, "") for name, kind in kinds.items()],
                outputs=[schema.FormalParameter("Y", "T1", "")],
                type_constraints=[("T1", ["tensor(float)"], ""), ("T2", ["tensor(uint8)"], "")],
                attributes=[
                    schema.Attribute(name, schema.AttrType.INT, "", required=False)
                    for name in numbers
                ],
            )
        )
    return Opset(domain, 1)


contrib = _own_ops()


def searchsorted(
    ordered: Any, values: Any, *, right: bool = False, side: str | None = None, **_: Any
) -> Any:
    """Number of `ordered` `[..., N]` below (or not above) each of `values` `[..., M]`."""
    last = op.Constant(value_ints=[-1])
    bounds = op.Unsqueeze(ordered, op.Constant(value_ints=[-2]))
    before = op.LessOrEqual if right or side == "right" else op.Less
    below = before(bounds, op.Unsqueeze(values, last))
    return op.ReduceSum(op.Cast(below, to=INT64), last, keepdims=0)


def stable_sort(
    values: Any, *, stable: bool = True, dim: int = -1, descending: bool = False
) -> Any:
    """`TopK` of all elements: among equal ones ONNX puts the lower index first."""
    axis = dim % len(values.shape)
    size = op.Shape(values, start=axis, end=axis + 1)
    return op.TopK(values, size, axis=dim, largest=int(descending), sorted=1)


def index_put(given: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """`ScatterND` where indices of one shape address the first dimensions: no transposition."""
    if accumulate or len({None if i is None else tuple(i.shape) for i in indices}) > 1:
        return core.aten_index_put(given, indices, values, accumulate)
    last = op.Constant(value_ints=[-1])
    return op.ScatterND(
        given, op.Concat(*(op.Unsqueeze(index, last) for index in indices), axis=-1), values
    )


def full(size: Any, value: Any, dtype: int | None = None, **_: Any) -> Any:
    """A constant made in its own type: through float32 the lowest float64 becomes infinite."""
    kind = None if dtype is None else onnx_ir.DataType(dtype)
    one = op.Constant(value=onnx_ir.tensor(value, dtype=kind))
    if not isinstance(size, Sequence) or not all(isinstance(n, int) for n in size):
        return op.Expand(one, size)
    return op.Expand(one, op.Constant(value_ints=list(size))) if size else one


def linear(given: Any, weight: Any, bias: Any = None) -> Any:
    """One `Gemm` for inputs of any rank: the weight stays as it is in the checkpoint."""
    if len(given.shape) == 2:
        return op.Gemm(given, weight, bias, transB=1)
    flat = op.Reshape(given, op.Constant(value_ints=[-1, given.shape[-1]]))
    width = op.Constant(value_ints=[weight.shape[0]])
    shape = op.Concat(op.Shape(given, start=0, end=-1), width, axis=0)
    return op.Reshape(op.Gemm(flat, weight, bias, transB=1), shape)


def quantized_linear(given: Any, weight: Any, codes: Any, scales: Any) -> Any:
    """`MatMulNBits`, which rounds activations as `runtime.models.quantized` does."""
    return contrib.MatMulNBits(given, codes, scales, **quantized_product(weight.shape, codes.shape))


def where(flag: Any, chosen: Any, other: Any) -> Any:
    """Booleans by `And` and `Or`: ONNX Runtime has no `Where` for them."""
    if chosen.dtype != onnx_ir.DataType.BOOL:
        return op.Where(flag, chosen, other)
    return op.Or(op.And(flag, chosen), op.And(op.Not(flag), other))


def joined_attention(
    joined: Any,
    keys: Any,
    values: Any,
    first: Any,
    positions: Any,
    slots: Any,
    cos: Any,
    sin: Any,
    bias: Any,
    scale: float,
) -> Any:
    """`GroupQueryAttention`, which writes to the cache that it is given where it may."""
    columns, kv_heads, size = joined.shape[1], keys.shape[1], keys.shape[3]
    last = op.Add(first, op.Constant(value_ints=[columns - 1]))
    heads = joined.shape[2] // size - 2 * kv_heads
    return contrib.GroupQueryAttention(
        joined,
        None,
        None,
        keys,
        values,
        op.Cast(last, to=INT32),
        op.Cast(op.Squeeze(op.Shape(slots)), to=INT32),
        cos,
        sin,
        positions,
        *(() if bias is None else (bias,)),
        num_heads=int(heads),
        kv_num_heads=int(kv_heads),
        scale=scale,
        do_rotary=1,
    )


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.where.self: where,
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.sort.stable: stable_sort,
    torch.ops.aten.index_put.default: index_put,
    torch.ops.aten.full.default: full,
    torch.ops.aten.linear.default: linear,
    torch.ops.specplan.joined_attention.default: joined_attention,
    torch.ops.specplan.quantized_linear.default: quantized_linear,
}
"""Translations by torch op."""
