"""The tensors of a GGUF model, read with the package `gguf`.

Blocks of Q8_0 and Q4_0 (ggml-common.h: a float16 scale and 32 codes) are taken over code by code:
only their order in memory changes. Every other type is read as the numbers that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.models.quantized import BLOCK, QuantizedMatrix

_SCALE = 2
"""Bytes of a block's scale, which comes first."""


class GgufTensors:
    """Tensors by their names in GGUF files; each is read when it is asked for.

    Args:
        files: of the model.
        turned: heads by the names of tensors whose rows alternate between the halves of a head, as
            llama.cpp turns queries and keys of Llama; they are given half by half.

    Attributes:
        read: names of those that were asked for.
    """

    def __init__(self, files: Sequence[Path], turned: dict[str, int]) -> None:
        try:
            from gguf import GGUFReader
        except ImportError as error:
            raise MissingCapabilityError(
                "reading the weights of a GGUF file needs the Python package 'gguf'",
                where=str(files[0]),
                remedy="Install it with: pip install 'specplan[gguf]'",
            ) from error
        self._where = str(files[0])
        tensors = (tensor for file in files for tensor in GGUFReader(file).tensors)
        self._tensors: dict[str, Any] = {tensor.name: tensor for tensor in tensors}
        self._turned = turned
        self.read: set[str] = set()

    def __iter__(self) -> Any:
        """Names of all."""
        return iter(self._tensors)

    def __contains__(self, name: object) -> bool:
        """Whether there is a tensor of this name."""
        return name in self._tensors

    def kind(self, name: str) -> str:
        """The type of a tensor, as `Q8_0`.

        Raises:
            UsageError: there is no such tensor.
        """
        if name not in self._tensors:
            raise UsageError(
                f"the file holds no tensor {name}",
                where=self._where,
                remedy="Convert the model again, with llama.cpp's convert_hf_to_gguf.py.",
            )
        kind: str = self._tensors[name].tensor_type.name
        return kind

    def dense(self, name: str, dtype: torch.dtype) -> Tensor:
        """A tensor's numbers, rows first; errors as of `kind`.

        Raises:
            MissingCapabilityError: the package cannot read its type.
        """
        from gguf.quants import dequantize

        kind, tensor = self.kind(name), self._tensors[name]
        self.read.add(name)
        try:
            numbers = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise MissingCapabilityError(
                f"the package gguf cannot read {name}, which is stored as {kind}",
                where=self._where,
                remedy="Convert it to F16, Q8_0 or Q4_0 with llama.cpp's llama-quantize.",
            ) from error
        made = torch.from_numpy(np.array(numbers, dtype=np.float32))
        return self._in_halves(name, made).to(dtype)

    def matrix(self, name: str) -> QuantizedMatrix:
        """A tensor whose type is one of `RUN_FORMATS`, with the codes and scales of the file."""
        bits = RUN_FORMATS[self.kind(name)]
        self.read.add(name)
        data = torch.from_numpy(np.array(self._tensors[name].data))
        rows, middle = len(data), 1 << bits - 1
        blocks = self._in_halves(name, data).view(rows, -1, _SCALE + BLOCK * bits // 8)
        scales = blocks[..., :_SCALE].contiguous().view(torch.float16)[..., 0].float()
        stored = blocks[..., _SCALE:]
        # Of 8 bits in two's complement; of 4 those half a block apart in a byte, ours neighbours.
        codes = stored ^ middle if bits == 8 else torch.cat((stored & 15, stored >> 4), -1)
        values = (codes.float() - middle) * scales[..., None]
        if bits == 4:
            codes = codes[..., 0::2] | codes[..., 1::2] << 4
        return QuantizedMatrix(values.view(rows, -1), codes.contiguous(), scales)

    def _in_halves(self, name: str, rows: Tensor) -> Tensor:
        heads = self._turned.get(name)
        if heads is None:
            return rows
        order = torch.arange(len(rows)).view(heads, -1, 2).transpose(1, 2).flatten()
        return rows[order]
