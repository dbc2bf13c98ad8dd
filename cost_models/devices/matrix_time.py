"""Time of a matrix product: tiles of the output in waves over the processors of a GPU.

A kernel gives each processor one tile of the output at a time, so rows are padded to tiles and
tiles to whole waves (NVIDIA, "Matrix Multiplication Background User's Guide", sections 3 and 4);
splitting the sum over the inputs makes more, shorter tiles for partial results to be added up.
A library picks among its kernels by trying: here, too, the fastest of a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from specplan.cost_models.cost import Matrix, Quantity

Array = npt.NDArray[np.float64]

TILES = ((128, 128), (256, 128), (64, 64), (32, 64))
"""Rows and columns of the output tiles that kernels are taken to come in."""
FEW_ROWS = 32
"""Tiles of no more rows than this are for products of no more rows than this."""
SPLITS = (1, 2, 3, 4)
PARTIAL_BYTES = 8.0
"""Bytes written and read per partial result of a split product, float32 both ways."""

_CONFIGURATIONS = tuple(product(TILES, SPLITS))
_ROWS = np.array([tile[0] for tile, _ in _CONFIGURATIONS], float)
_COLUMNS = np.array([tile[1] for tile, _ in _CONFIGURATIONS], float)
_SPLITS = np.array([split for _, split in _CONFIGURATIONS], float)
_MOST_ROWS = np.where(_ROWS <= FEW_ROWS, FEW_ROWS, np.inf)
_EXTRA = np.where(_SPLITS > 1, PARTIAL_BYTES * _SPLITS, 0.0)


@dataclass(frozen=True, slots=True)
class Tiling:
    """What tiled kernels reach on a GPU.

    Attributes:
        processors: streaming multiprocessors or compute units.
        flops: reachable operations per second of all processors on endless tiles.
        bandwidth: reachable bytes per second.
        half_area: area (rows x columns) of the tile that reaches half of `flops`: small tiles
            load more per operation.
    """

    processors: float
    flops: float
    bandwidth: float
    half_area: float

    def seconds(self, matrix: Matrix, traffic: Quantity) -> Quantity:
        """Time without the launch.

        Args:
            matrix: its sizes; rows and copies may be arrays.
            traffic: bytes of weights and activations.
        """
        if _is_number(matrix.rows, matrix.copies, traffic):
            return _scalar(
                self,
                float(matrix.rows),
                matrix.inputs,
                matrix.outputs,
                float(matrix.copies),
                float(traffic),
            )
        rows = np.asarray(matrix.rows, float)[..., None]
        copies = np.asarray(matrix.copies, float)[..., None]
        return self._fastest(
            rows, matrix.inputs, matrix.outputs, copies, np.asarray(traffic, float)[..., None]
        )

    def _fastest(
        self, rows: Array, inputs: int, outputs: int, copies: Array, traffic: Array
    ) -> Array:
        tiles, seconds_per_wave = _waves(self, inputs, outputs)
        units = np.ceil(rows / _ROWS) * (copies * tiles)
        waves = np.where(rows <= _MOST_ROWS, np.ceil(units / self.processors), np.inf)
        compute = waves * seconds_per_wave
        memory = (traffic + (rows * copies) * (outputs * _EXTRA)) / self.bandwidth
        fourth = np.square(np.square(compute)) + np.square(np.square(memory))
        seconds: Array = np.sqrt(np.sqrt(fourth.min(axis=-1)))
        return seconds


@lru_cache(maxsize=1024)
def _waves(tiling: Tiling, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Per configuration: tiles per row of tiles, and seconds of a wave of them."""
    area = _ROWS * _COLUMNS
    flops = tiling.flops / tiling.processors * area / (area + tiling.half_area)
    return np.ceil(outputs / _COLUMNS) * _SPLITS, 2.0 * area * (inputs / _SPLITS) / flops


@lru_cache(maxsize=65536)
def _scalar(
    tiling: Tiling, rows: float, inputs: int, outputs: int, copies: float, traffic: float
) -> float:
    seconds = tiling._fastest(
        np.array([rows]), inputs, outputs, np.array([copies]), np.array([traffic])
    )
    return float(seconds)


def smooth_maximum(a: Quantity, b: Quantity, sharpness: float) -> Quantity:
    """(a^p + b^p)^(1/p) of times >= 0; the hard maximum for p = infinity."""
    longer, shorter = np.maximum(a, b), np.minimum(a, b)
    if not np.isfinite(sharpness):
        return longer
    ratio = shorter / np.where(longer > 0.0, longer, 1.0)
    return longer * (1.0 + ratio**sharpness) ** (1.0 / sharpness)


def _is_number(*quantities: Quantity) -> bool:
    return all(np.ndim(quantity) == 0 for quantity in quantities)
