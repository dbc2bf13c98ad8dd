"""Matrix products from a table of (m, n, k, format): rows, outputs, inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specplan.cost_models.devices.silicon.grid import Curve, Grid, Reading
from specplan.cost_models.devices.silicon.package import DataSheet, Table
from specplan.cost_models.devices.silicon.reference import cold_seconds, reference_seconds


@dataclass(frozen=True, slots=True)
class ProductFormat:
    """How a table's format moves numbers.

    Attributes:
        weight: bytes per weight, scales included.
        activation: bytes per input.
        math: number format of the multiply-adds.
    """

    weight: float
    activation: float
    math: str


FORMATS = {
    "bfloat16": ProductFormat(2.0, 2.0, "bfloat16"),
    "fp8": ProductFormat(1.0, 1.0, "fp8"),
    "fp8_block": ProductFormat(1.0, 1.0, "fp8"),
    "nvfp4": ProductFormat(0.5625, 0.5625, "fp4"),
    "int8_wo": ProductFormat(1.0, 2.0, "bfloat16"),
    "int4_wo": ProductFormat(0.5, 2.0, "bfloat16"),
    "sq": ProductFormat(1.0, 1.0, "int8"),
}
"""By the tables' names; `_wo` is weight only, `sq` SmoothQuant (int8 weights and inputs)."""

COLUMNS = ("gemm_dtype", "m", "n", "k")

_OUTPUT_BYTES = 2.0
_HOST_BOUND_SECONDS = 30e-6
"""Of the quickest product in a table: more, and what was timed is the host, not the kernel."""

_SMALLEST = 128  # narrower products show launch times rather than efficiencies


@dataclass(frozen=True)
class Products:
    """Times of matrix products in one format.

    Attributes:
        sheet: the device's.
        format: how numbers move.
        grid: factors over rows, outputs and inputs.
        source: file of the table.
    """

    sheet: DataSheet
    format: ProductFormat
    grid: Grid
    source: str
    _curves: dict[tuple[float, float], Curve] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sheet: DataSheet, table: Table, name: str) -> Products | None:
        """From the rows of one format; None if it has none, or if the host was timed."""
        columns = table.columns
        chosen = table.where(
            (columns["gemm_dtype"] == name)
            & (columns["n"] >= _SMALLEST)
            & (columns["k"] >= _SMALLEST)
        )
        if name not in FORMATS or not chosen.seconds.size:
            return None
        if chosen.seconds.min() > _HOST_BOUND_SECONDS:
            return None
        form = FORMATS[name]
        m, n, k = (chosen.columns[axis].astype(np.float64) for axis in ("m", "n", "k"))
        seconds = cold_seconds(sheet, chosen.seconds, form.weight * n * k)
        grid = Grid.of([m, n, k], seconds / _reference(sheet, form, m, n, k), noise_axis=0)
        return cls(sheet, form, grid, table.source)

    def holds(self, outputs: float, inputs: float) -> bool:
        """Whether a product is not narrower than all that were measured."""
        least = np.exp([axis[0] for axis in self.grid.axes])
        return bool(outputs >= least[1] and inputs >= least[2])

    def seconds(self, rows: Any, outputs: float, inputs: float) -> tuple[Any, Reading]:
        """Seconds of one product, and the reading behind them.

        A product with more rows or outputs than were measured is as efficient as equal parts of
        it that were: what is that large fills the device many times over.

        Args:
            rows: a number or an array, at least one.
            outputs: n.
            inputs: k.
        """
        most = np.exp([axis[-1] for axis in self.grid.axes]) * (1.0 + 1e-9)
        part = float(outputs / np.ceil(outputs / most[1]))
        key = part, float(inputs)
        if key not in self._curves:
            self._curves[key] = self.grid.fixed(*key)
        reading = self._curves[key].at(rows / np.ceil(rows / most[0]))
        reference = _reference(self.sheet, self.format, rows, outputs, inputs)
        return reference * reading.factor, reading


def _reference(sheet: DataSheet, form: ProductFormat, m: Any, n: Any, k: Any) -> Any:
    moved = form.weight * n * k + form.activation * m * k + _OUTPUT_BYTES * m * n
    return reference_seconds(sheet, form.math, 2.0 * m * n * k, moved)
