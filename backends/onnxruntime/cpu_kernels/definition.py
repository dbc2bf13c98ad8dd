"""Whether matrices in blocks are multiplied here as they are defined.

ONNX Runtime's kernels of `MatMulNBits` differ by processor; some add up pairs in 16 bits, or round
activations by the row. Our own, where they run, are the same everywhere.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from specplan.backends.onnx_export.quantized import quantized_product
from specplan.backends.onnxruntime.packed_sessions import PackedWeights, can_share
from specplan.backends.onnxruntime.sessions import open_session
from specplan.backends.onnxruntime.values import bind, elsewhere, run_bound
from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.runtime.models.quantized import QuantizedMatrix, linear, quantize

TOLERANCE = 1e-5
"""Of the largest product: sums in another order differ by less, another rounding by far more."""


def product_here(
    inputs: Tensor, matrix: QuantizedMatrix, packed: PackedWeights | None = None
) -> Tensor:
    """`inputs` `[M, K]` times a matrix `[N, K]`, transposed, by the op.

    Args:
        inputs: float32.
        matrix: the weights.
        packed: see `open_session`; with it our own kernels multiply, where they can.
    """
    from onnx import TensorProto, helper

    options: dict[str, Any] = {**quantized_product(matrix.shape, matrix.codes.shape)}
    node = helper.make_node(
        "MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **options
    )
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(inputs), options[size]])
        for name, size in (("x", "K"), ("y", "N"))
    ]
    weights = {"codes": matrix.codes, "scales": matrix.scales}
    given = [elsewhere(*one) for one in weights.items()]
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], given)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    code = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    session = open_session(code, weights, packed=packed)
    binding, made = session.io_binding(), torch.empty(len(inputs), matrix.shape[0])
    bind(binding.bind_input, "x", inputs)
    bind(binding.bind_output, "y", made)
    run_bound(session, binding)
    return made


@cache
def are_as_defined() -> bool:
    """Whether products of all formats are, of one row and of several, with the largest codes."""
    draws = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 128, generator=draws)
    weight[:8] = weight[:8].sign()  # pairs of the largest codes of one sign
    inputs = torch.randn(12, 128, generator=draws)
    inputs[0] = inputs[1] = 1.0
    packed = PackedWeights() if can_share() else None
    for form in RUN_FORMATS:
        matrix = quantize(weight, form)
        for rows in (1, len(inputs)):
            wanted = linear(inputs[:rows], matrix)
            missed = (product_here(inputs[:rows], matrix, packed) - wanted).abs().max()
            if missed > TOLERANCE * wanted.abs().max():
                return False
    return True
