"""Mixtures of experts from tables of whole blocks: routing, both products, weighted sum.

A table holds model families (experts, active ones, widths) over numbers of tokens, under several
ways of routing; what is read is the power law 1.01, nearest to independent draws, where it was
measured: `balanced` touches as many experts as there can be from a few tokens on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specplan.cost_models.devices.silicon.grid import Grid, Reading
from specplan.cost_models.devices.silicon.package import DataSheet, Table
from specplan.cost_models.devices.silicon.products import FORMATS, ProductFormat
from specplan.cost_models.devices.silicon.reference import reference_seconds

COLUMNS = (
    "moe_dtype",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
    "distribution",
)

_ROUTINGS = ("power_law_1.01", "power_law_1.2", "balanced", "uniform")
# Of a family that was not measured, times 1 + its distance from the nearest one: 89 % of 64000
# times of families left out of the tables lie within (`benchmarks/kernel_tables.py`).
_TRANSFER_ERROR = 0.3


@dataclass(frozen=True, slots=True)
class Family:
    """Sizes of a mixture's block on one device.

    Attributes:
        hidden: width of the model.
        width: of one expert's share on this device.
        active: experts per token.
        experts: how many there are.
    """

    hidden: float
    width: float
    active: float
    experts: float

    def distance(self, other: Family) -> float:
        """Sum of the logarithms of the ratios of all sizes."""
        pairs = (
            (self.hidden, other.hidden),
            (self.width, other.width),
            (self.active, other.active),
            (self.experts, other.experts),
        )
        return sum(abs(float(np.log(a / b))) for a, b in pairs)


@dataclass(frozen=True)
class Experts:
    """Times of gated expert blocks in one format.

    Attributes:
        sheet: the device's.
        format: how numbers move.
        grids: factors over tokens by family.
        source: file of the table.
    """

    sheet: DataSheet
    format: ProductFormat
    grids: Mapping[Family, Grid]
    source: str

    @classmethod
    def of(cls, sheet: DataSheet, table: Table, name: str) -> Experts | None:
        """From the rows of one format; None if the table has none."""
        columns = table.columns
        chosen = (columns["moe_dtype"] == name) & (columns["moe_ep_size"] == 1)
        routings = set(columns["distribution"][chosen])
        routing = next((way for way in _ROUTINGS if way in routings), None)
        if name not in FORMATS or routing is None:
            return None
        rows = table.where(chosen & (columns["distribution"] == routing))
        by_column = rows.columns
        keys = np.stack(
            [
                by_column["hidden_size"],
                by_column["inter_size"] / by_column["moe_tp_size"],
                by_column["topk"],
                by_column["num_experts"],
            ],
            axis=1,
        )
        grids: dict[Family, Grid] = {}
        families, index = np.unique(keys, axis=0, return_inverse=True)
        for number, sizes in enumerate(families):
            family, mask = Family(*map(float, sizes)), index.ravel() == number
            tokens = by_column["num_tokens"][mask].astype(float)
            reference = _reference(sheet, FORMATS[name], family, tokens)
            grids[family] = Grid.of([tokens], rows.seconds[mask] / reference, noise_axis=0)
        return cls(sheet, FORMATS[name], grids, table.source)

    def seconds(self, family: Family, tokens: Any) -> tuple[Any, Reading]:
        """Seconds of one block, and the reading behind them.

        Args:
            family: its sizes; an unmeasured one has the efficiency of the nearest.
            tokens: a number or an array, at least one.
        """
        nearest = min(self.grids, key=family.distance)
        reading = self.grids[nearest].at(tokens)
        if nearest != family:
            error = np.hypot(reading.error, _TRANSFER_ERROR * (1.0 + family.distance(nearest)))
            reading = Reading(reading.factor, error, reading.outside)
        return _reference(self.sheet, self.format, family, tokens) * reading.factor, reading


def _reference(sheet: DataSheet, form: ProductFormat, family: Family, tokens: Any) -> Any:
    """Three matrices per expert; E (1 - (1 - k / E)^T) experts are read (formulas 10.1)."""
    matrices = 3.0 * family.hidden * family.width
    read = family.experts * (1.0 - (1.0 - family.active / family.experts) ** tokens)
    inputs = form.activation * tokens * (2.0 * family.hidden + 3.0 * family.active * family.width)
    moved = form.weight * matrices * read + inputs
    return reference_seconds(sheet, form.math, 2.0 * tokens * family.active * matrices, moved)
