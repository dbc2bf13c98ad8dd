"""Matrices in the order in which the kernels of `products.h` read them.

A tile is 16 rows of a matrix `[N, K]`, which are 16 columns of a product; the last one is filled up
with zeros. All of it is done by numpy: torch's threads would be awake when the first round runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specplan.runtime.models.quantized import BLOCK

WIDTH = 16
"""Columns of a tile, one vector of float32."""
_CODES = 4
"""Of a column, that are multiplied and summed up at once."""
_LOW = np.uint32(0xFFFF)
"""Bits of a float32 number that bfloat16 has not."""


def stored_as(weight: Tensor) -> torch.dtype | None:
    """The type of 16 bits that has all numbers of a float32 matrix, as that of its checkpoint."""
    if weight.dtype != torch.float32:
        return None
    for half, same in ((torch.bfloat16, _are_bfloat16), (torch.float16, _are_float16)):
        if all(same(row) for row in weight.numpy()):
            return half
    return None


def _are_bfloat16(numbers: NDArray[Any]) -> bool:
    return not (numbers.view(np.uint32) & _LOW).any()


def _are_float16(numbers: NDArray[Any]) -> bool:
    with np.errstate(over="ignore"):
        halves = numbers.astype(np.float16)
    return bool((halves.astype(np.float32) == numbers).all())


def bfloat16_tiles(weight: Tensor) -> Tensor:
    """Float32 `[N, K]` as bfloat16 `[T, K, 16]`."""
    halves = (weight.numpy().view(np.uint32) >> 16).astype(np.uint16)
    return _column_tiles(halves.view(np.int16)).view(torch.bfloat16)


def float16_tiles(weight: Tensor) -> Tensor:
    """Float32 `[N, K]` as float16 `[T, K, 16]`."""
    return _column_tiles(weight.numpy().astype(np.float16))


def code_tiles(codes: Tensor) -> Tensor:
    """Codes of a `QuantizedMatrix` `[N, B, bytes]` as `[T, B, groups, 16, 4]`.

    Of 8 bits, groups are of four codes in turn; of 4 bits, a group has those of a block's first
    half in the lower bits and those of its second half in the upper ones.
    """
    given: NDArray[Any] = codes.numpy()
    rows, blocks, stored = given.shape
    if stored < BLOCK:
        given = np.stack([given & 15, given >> 4], -1).reshape(rows, blocks, BLOCK)
    tiles = _tiles(given).reshape(-1, WIDTH, blocks, BLOCK // _CODES, _CODES)
    tiles = tiles.transpose(0, 2, 3, 1, 4)
    if stored < BLOCK:
        first, second = np.split(tiles, 2, axis=2)
        tiles = first | second << 4
    return torch.from_numpy(np.ascontiguousarray(tiles))


def scale_tiles(scales: Tensor) -> Tensor:
    """`[N, B]` as `[T, B, 16]`."""
    return _column_tiles(scales.numpy())


def in_turn(tiles: Tensor) -> Tensor:
    """Tiles of the first half of a matrix and of its second half in turn."""
    count, *shape = tiles.shape
    return tiles.view(2, count // 2, *shape).transpose(0, 1).reshape(tiles.shape)


def _column_tiles(matrix: NDArray[Any]) -> Tensor:
    """`[N, K]` as `[T, K, 16]`."""
    return torch.from_numpy(np.ascontiguousarray(_tiles(matrix).transpose(0, 2, 1)))


def _tiles(matrix: NDArray[Any]) -> NDArray[Any]:
    """`[N, ...]` as `[T, 16, ...]`."""
    missing = -len(matrix) % WIDTH
    if missing:
        matrix = np.concatenate([matrix, np.zeros((missing, *matrix.shape[1:]), matrix.dtype)])
    return matrix.reshape(-1, WIDTH, *matrix.shape[1:])
