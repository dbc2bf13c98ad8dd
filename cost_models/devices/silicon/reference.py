"""The formula that measured times are compared with; its constants cancel on measured sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.devices.silicon.package import DataSheet

_REACHED = 0.8  # common part of peaks and bandwidth
_FLOOR_SECONDS = 4e-6  # of one kernel
_UNCACHED_BYTES = 256e6  # more than any cache of these devices holds


def reference_seconds(sheet: DataSheet, peak: str, flops: Any, moved: Any) -> Any:
    """t0 + ((F / e P)^2 + (B / e W)^2)^(1/2), the smooth roofline of formulas 10.1.

    Args:
        sheet: data-sheet figures of the device.
        peak: number format of the multiply-adds.
        flops: operations; a number or an array.
        moved: bytes read and written.

    Returns:
        Seconds.
    """
    compute = flops / (_REACHED * sheet.peak(peak))
    memory = moved / (_REACHED * sheet.memory_bandwidth)
    return _FLOOR_SECONDS + (compute**2 + memory**2) ** 0.5


def reference_link_seconds(sheet: DataSheet, moved: Any) -> Any:
    """t0 + B / (e W) over the links between devices; `moved` bytes per rank."""
    return _FLOOR_SECONDS + moved / (_REACHED * sheet.link_bandwidth)


def cold_seconds(
    sheet: DataSheet, seconds: NDArray[np.float64], moved: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Times of kernels whose weights or cached keys and values come from memory.

    The tables repeat one kernel on the same data. Where these fit into the last cache (96 MB on
    L40S, 128 MB on RTX PRO 6000) they were read up to four times as fast as the memory could; in
    a model, a layer's turn comes when the others have emptied the cache. No time is therefore
    taken to be shorter than memory needs at the bandwidth that the table itself reaches on data
    that no cache holds.

    Args:
        sheet: of the device.
        seconds: measured.
        moved: bytes that lie in memory.
    """
    large = moved >= _UNCACHED_BYTES
    reached = _REACHED * sheet.memory_bandwidth
    if large.any():
        reached = float(np.quantile(moved[large] / seconds[large], 0.9))
    return np.maximum(seconds, moved / reached)
