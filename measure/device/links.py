"""What it takes to read layers that lie outside of memory, each by itself."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from specplan.cost_models.devices.measured.rows import ReadRow
from specplan.cost_models.devices.measured.table import MeasuredTable
from specplan.measure.workbench import Workbench
from specplan.runtime.models.streamed import StreamedLayers, streamed_of

LINK = "disk"
TURNS = 3
"""Times that all layers are read in a pass of the profiler."""


def measure_reads(bench: Workbench, table: MeasuredTable, passes: int) -> bool:
    """Read the layers of every model that has such; those of a size that was measured are not.

    The first turn of a pass is not counted: a drive, or the host of a virtual machine, may have
    fallen asleep or hold other data.

    Args:
        bench: the problem's models.
        table: gets a row for each size of layers.
        passes: over all layers.

    Returns:
        Whether the table has new rows.
    """
    streams = [one for model in bench.models.values() if (one := streamed_of(model)) is not None]
    sizes = {_size(layers): layers for layers in streams}
    missing = [size for size in sizes if ("read", LINK, size) not in table.rows]
    for _ in range(passes):
        for size in missing:
            low, middle, high = np.quantile(_turns(sizes[size]), (0.25, 0.5, 0.75)).tolist()
            runs = TURNS * len(sizes[size].streamed)
            row = ReadRow(
                link=LINK, moved=size, seconds=middle, low=low, high=high, runs=runs,
                passes=(middle,),
            )  # fmt: skip
            table.join(row)
    return bool(missing)


def _size(layers: StreamedLayers) -> int:
    """Bytes of a layer, in the mean."""
    sizes = [layers.files.size(index) for index in layers.streamed]
    return round(sum(sizes) / len(sizes))


def _turns(layers: StreamedLayers) -> list[float]:
    """Seconds of a layer, for each turn over all of them."""
    seconds: list[float] = []
    for turn in range(TURNS + 1):
        begin = perf_counter()
        count = sum(1 for _ in layers.read_through())
        if turn:
            seconds.append((perf_counter() - begin) / count)
    return seconds
