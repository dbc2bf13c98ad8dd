"""All-reduce over the devices of a node, from tables of message sizes.

`message_size` counts elements of two bytes: read as bytes, the largest messages of H100 would
reach half of the link's bandwidth, where NCCL with NVLink SHARP is known to reach all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specplan.cost_models.devices.silicon.grid import Grid, Reading
from specplan.cost_models.devices.silicon.package import DataSheet, Table
from specplan.cost_models.devices.silicon.reference import reference_link_seconds

COLUMNS = ("op_name", "kernel_source", "num_gpus", "message_size")

_ELEMENT_BYTES = 2.0


@dataclass(frozen=True)
class Reduction:
    """Times of all-reduce.

    Attributes:
        sheet: the devices'.
        grids: factors over the bytes that a rank moves in a ring, by number of devices.
        source: file of the table.
    """

    sheet: DataSheet
    grids: Mapping[int, Grid]
    source: str

    @classmethod
    def of(cls, sheet: DataSheet, table: Table) -> Reduction | None:
        """From the rows that were captured in a graph; None if there are none."""
        columns = table.columns
        eager = [str(kernel).endswith("_eager") for kernel in columns["kernel_source"]]
        rows = table.where((columns["op_name"] == "all_reduce") & ~np.asarray(eager, dtype=bool))
        grids: dict[int, Grid] = {}
        for devices in sorted(set(rows.columns["num_gpus"].tolist())):
            mask = rows.columns["num_gpus"] == devices
            message = _ELEMENT_BYTES * rows.columns["message_size"][mask].astype(float)
            moved = 2.0 * (devices - 1) / devices * message
            factors = rows.seconds[mask] / reference_link_seconds(sheet, moved)
            grids[int(devices)] = Grid.of([moved], factors, noise_axis=0)
        return cls(sheet, grids, table.source) if grids else None

    def seconds(self, devices: int, moved: Any) -> tuple[Any, Reading] | None:
        """Seconds of one all-reduce, and the reading behind them; None for unmeasured numbers.

        Args:
            devices: ranks.
            moved: bytes that each moves in a ring, 2 (N - 1) / N of the message.
        """
        grid = self.grids.get(devices)
        if grid is None:
            return None
        reading = grid.at(moved)
        return reference_link_seconds(self.sheet, moved) * reading.factor, reading
