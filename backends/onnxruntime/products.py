"""Whether ONNX Runtime multiplies by matrices in blocks here as they are defined.

Its kernels of `MatMulNBits` differ by processor; some add up pairs in 16 bits, or round activations
by the row.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from specplan.backends.onnx_export.quantized import quantized_product
from specplan.backends.onnxruntime.sessions import open_session
from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.runtime.models.quantized import QuantizedMatrix, linear, quantize

TOLERANCE = 1e-5
"""Of the largest product: sums in another order differ by less, another rounding by far more."""


def product_here(inputs: Tensor, matrix: QuantizedMatrix) -> Tensor:
    """`inputs` `[M, K]` times a matrix `[N, K]`, transposed, by the op."""
    from onnx import TensorProto, helper, numpy_helper

    options: dict[str, Any] = {**quantized_product(matrix.shape, matrix.codes.shape)}
    node = helper.make_node(
        "MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **options
    )
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(inputs), options[size]])
        for name, size in (("x", "K"), ("y", "N"))
    ]
    weights = [
        numpy_helper.from_array(tensor.numpy(), name)
        for name, tensor in (("codes", matrix.codes), ("scales", matrix.scales))
    ]
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], weights)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    code = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    session = open_session(code)
    (made,) = session.run(None, {"x": inputs.numpy()})
    return torch.from_numpy(made)


@cache
def are_as_defined() -> bool:
    """Whether products of all formats are, of one row and of several, with the largest codes."""
    draws = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 128, generator=draws)
    weight[:8] = weight[:8].sign()  # pairs of the largest codes of one sign
    inputs = torch.randn(12, 128, generator=draws)
    inputs[0] = inputs[1] = 1.0
    for form in RUN_FORMATS:
        matrix = quantize(weight, form)
        for rows in (1, len(inputs)):
            wanted = linear(inputs[:rows], matrix)
            missed = (product_here(inputs[:rows], matrix) - wanted).abs().max()
            if missed > TOLERANCE * wanted.abs().max():
                return False
    return True
