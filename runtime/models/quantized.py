"""Matrices in blocks of 32 weights with one scale each, multiplied by activations in 8 bits.

The formats are `Q8_0` and `Q4_0` of llama.cpp (`quantize_row_q8_0_ref` and `quantize_row_q4_0_ref`
of ggml-quants.c): scales are rounded to float16. Activations are rounded as `MatMulNBits` of ONNX
Runtime rounds them at accuracy level 4: in blocks of 32, the largest of which becomes 127
(llama.cpp does the same with scales in float16). Both are part of what such a model computes, in
every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.ir.errors import MissingCapabilityError

BLOCK = 32
_MOST = 127.0
"""The largest code of an activation."""


class QuantizedMatrix(NamedTuple):
    """A matrix `[N, K]` in blocks along K.

    Attributes:
        values: what its codes stand for, float32 `[N, K]`.
        codes: of 8 bits, or two of 4 with the earlier one in the lower half; 0 stands for the
            lowest value, uint8 `[N, K / 32, 4 * bits]`.
        scales: float32 `[N, K / 32]`.
    """

    values: Tensor
    codes: Tensor
    scales: Tensor

    @property
    def shape(self) -> torch.Size:
        """`[N, K]`."""
        return self.values.shape


Matrix = Tensor | QuantizedMatrix


def quantize(weight: Tensor, form: str) -> QuantizedMatrix:
    """A matrix rounded to blocks.

    Args:
        weight: float32 `[N, K]`.
        form: one of `RUN_FORMATS`.

    Raises:
        MissingCapabilityError: a block would reach over the end of a row.
    """
    rows, columns = weight.shape
    if columns % BLOCK:
        raise MissingCapabilityError(
            f"{form} has blocks of {BLOCK} weights, and a matrix has rows of {columns}",
            remedy="Give another dtype.",
        )
    bits = RUN_FORMATS[form]
    middle = 1 << bits - 1
    blocks = weight.reshape(rows, -1, BLOCK)
    if bits == 8:
        exact = blocks.abs().amax(-1) / _MOST
        steps = blocks * _inverse(exact)[..., None]
        codes = torch.trunc(steps + steps.sign() / 2) + middle  # halves away from 0
    else:
        largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))[..., 0]
        exact = largest / -middle
        steps = blocks * _inverse(exact)[..., None]
        codes = torch.trunc(steps + (middle + 0.5)).clamp(max=2 * middle - 1)
    scales = exact.to(torch.float16).to(torch.float32)
    values = ((codes - middle) * scales[..., None]).view(rows, columns)
    stored = codes.to(torch.uint8)
    if bits == 4:
        stored = stored[..., 0::2] | stored[..., 1::2] << 4
    return QuantizedMatrix(values, stored, scales)


def linear(inputs: Tensor, weight: Matrix, bias: Tensor | None = None) -> Tensor:
    """`inputs` `[..., K]` times a matrix `[N, K]`, transposed, plus a bias `[N]`."""
    if isinstance(weight, Tensor):
        return functional.linear(inputs, weight, bias)
    product: Tensor = torch.ops.specplan.quantized_linear(inputs, *weight)
    return product if bias is None else product + bias


class QuantizedLinear(torch.nn.Module):
    """A linear layer in blocks; `weight` are its values.

    Args:
        matrix: the weights.
        bias: `[N]`; None for none.
    """

    weight: Tensor
    codes: Tensor
    scales: Tensor

    def __init__(self, matrix: QuantizedMatrix, bias: Tensor | None = None) -> None:
        super().__init__()
        for name, tensor in zip(("weight", "codes", "scales"), matrix, strict=True):
            self.register_buffer(name, tensor)
        self.bias = bias

    @property
    def matrix(self) -> QuantizedMatrix:
        """The weights."""
        return QuantizedMatrix(self.weight, self.codes, self.scales)

    def forward(self, inputs: Tensor) -> Tensor:
        """The product, plus the bias."""
        return linear(inputs, self.matrix, self.bias)


def quantize_layers(module: torch.nn.Module, form: str) -> None:
    """Round the matrices of all linear layers inside of a module; see `quantize`."""
    for name, part in [*module.named_modules()]:
        if isinstance(part, torch.nn.Linear):
            parent, _, own = name.rpartition(".")
            rounded = QuantizedLinear(quantize(part.weight.detach(), form), part.bias)
            setattr(module.get_submodule(parent), own, rounded)


def matrix_of(layer: Any) -> Matrix:
    """The weights of a linear layer, in blocks or not."""
    matrix: Matrix = layer.matrix if isinstance(layer, QuantizedLinear) else layer.weight
    return matrix


def stacked(matrices: Sequence[Matrix]) -> Matrix:
    """Matrices of one format below each other."""
    blocks = [one for one in matrices if isinstance(one, QuantizedMatrix)]
    if blocks:
        return QuantizedMatrix(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))
    return torch.cat([one for one in matrices if isinstance(one, Tensor)])


def _rounded(inputs: Tensor) -> Tensor:
    """Activations as the product sees them: in blocks of 8 bits, halves to the even code."""
    blocks = inputs.unflatten(-1, (-1, BLOCK))
    most = blocks.abs().amax(-1, keepdim=True)
    rounded: Tensor = (blocks * (_MOST * _inverse(most))).round() * (most / _MOST)
    return rounded.flatten(-2)


def _inverse(numbers: Tensor) -> Tensor:
    return torch.where(numbers == 0, 0.0, 1.0 / numbers)


def _product(inputs: Tensor, values: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """The product by its definition; what has an op for it reads codes and scales instead."""
    return functional.linear(_rounded(inputs), values)


# Composite: an exporter may keep the op, every other compiler sees what it is made of.
_LIBRARY = torch.library.Library("specplan", "FRAGMENT")
_LIBRARY.define(
    "quantized_linear(Tensor inputs, Tensor values, Tensor codes, Tensor scales) -> Tensor"
)
_LIBRARY.impl("quantized_linear", _product, "CompositeImplicitAutograd")
