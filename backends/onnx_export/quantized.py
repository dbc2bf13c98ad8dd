"""How ONNX Runtime multiplies by matrices in blocks (`MatMulNBits` of its own op set)."""

from __future__ import annotations

from collections.abc import Sequence

from specplan.runtime.models.quantized import BLOCK

ROUNDED_ACTIVATIONS = 4
"""The accuracy level at which activations are rounded to 8 bits, block by block."""


def quantized_product(matrix: Sequence[int], codes: Sequence[int]) -> dict[str, int]:
    """Attributes of the op for a `QuantizedMatrix`, from its shape and that of its codes."""
    return {
        "N": int(matrix[0]),
        "K": int(matrix[1]),
        "bits": 8 * int(codes[2]) // BLOCK,
        "block_size": BLOCK,
        "accuracy_level": ROUNDED_ACTIVATIONS,
    }
