"""Fit the efficiencies of device files to public measurements, and print them.

    python benchmarks/fit_devices.py --rows ../shared/data/published_dev.json

Matrix products: the calibration rows of `published_rows/vidur.py`, per device; mean |log error|
is minimised by differential evolution. Small kernels: least relative squares on the same rows.
The 90 % half width is that of rows left out: each width of tensor parallelism is predicted by
constants fitted to the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import differential_evolution, nnls

from published_rows import vidur
from published_rows.public_models import public_model
from published_rows.row import Row, read_rows
from specplan.cost_models.cost import OpCost
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.matrix_time import Tiling
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.forward import forward_ops

Array = npt.NDArray[np.float64]
BOUNDS = {
    "memory_efficiency": (0.5, 1.0),
    "compute_efficiency": (0.4, 1.0),
    "seconds_per_launch": (0.0, 12e-6),
    "tile_half_area": (0.0, 16e3),
}
SMALL_KERNELS = 6
"""Small kernels of a layer in Vidur's profiles: two norms, rotation, activation, two sums."""


@dataclass(frozen=True)
class Sample:
    """One product under one width of tensor parallelism, over the numbers of tokens."""

    op: OpCost
    width: int
    measured: Array


def samples(rows: Sequence[Row]) -> list[Sample]:
    """The products of some rows of one device, grouped so that each is priced as one array."""
    groups: dict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        for item in vidur.op_rows(row):
            key = (row.target, int(row.get("tp") or 1), vidur.OPS[str(item.setting["op"])])
            groups[key].append((row.get("num_tokens") or 0.0, 1e-6 * (item.number or 0.0)))
    taken = []
    for (target, width, name), pairs in groups.items():
        shape = public_model(target)
        assert shape is not None
        tokens, seconds = np.array(pairs).T
        ops = forward_ops(shape, 1, tokens, 0, 0, (0, 1), tensor_parallel=width)
        taken += [Sample(op, width, seconds) for op in ops if op.name == name]
    return taken


def fit(device: AnalyticDevice, data: Sequence[Sample]) -> dict[str, float]:
    """The constants of `BOUNDS` that suit the samples best."""

    def loss(values: Array) -> float:
        constants = dict(zip(BOUNDS, values, strict=True))
        return float(np.mean(np.abs(np.log1p(errors(device, data, constants)))))

    result = differential_evolution(
        loss, list(BOUNDS.values()), seed=0, maxiter=60, popsize=12, tol=1e-6
    )
    return {name: float(value) for name, value in zip(BOUNDS, result.x, strict=True)}


def errors(device: AnalyticDevice, data: Sequence[Sample], values: dict[str, float]) -> Array:
    """Relative errors of all samples under some constants."""
    tiling = Tiling(
        device.processors,
        values["compute_efficiency"] * device.peak_flops["float16"],
        values["memory_efficiency"] * device.memory_bandwidth,
        values["tile_half_area"],
    )
    parts = []
    for item in data:
        assert item.op.matrix is not None
        traffic = item.op.cost.weight_bytes + item.op.cost.activation_bytes
        seconds = values["seconds_per_launch"] + tiling.seconds(item.op.matrix, traffic)
        parts.append(seconds / item.measured - 1.0)
    return np.concatenate(parts)


def left_out(device: AnalyticDevice, data: Sequence[Sample]) -> Array:
    """Errors of each width, predicted from the others."""
    parts = []
    for width in sorted({item.width for item in data}):
        others = [item for item in data if item.width != width]
        mine = [item for item in data if item.width == width]
        parts.append(errors(device, mine, fit(device, others)))
    return np.concatenate(parts)


def fit_small_kernels(device: AnalyticDevice, rows: Sequence[Row]) -> tuple[float, float]:
    """Seconds per small kernel, and traffic per byte of the products' activations."""
    table, measured = [], []
    for row in rows:
        shape, seconds = public_model(row.target), vidur.elementwise_microseconds(row)
        if shape is None or not seconds:
            continue
        tokens, width = row.get("num_tokens") or 0.0, int(row.get("tp") or 1)
        ops = forward_ops(shape, 1, tokens, 0, 0, (0, 1), tensor_parallel=width)
        moved = sum(op.cost.activation_bytes for op in ops if op.matrix)
        table.append((SMALL_KERNELS, moved / device.memory_bandwidth))
        measured.append(1e-6 * seconds)
    scale = 1.0 / np.array(measured)
    (small, traffic), _ = nnls(np.array(table) * scale[:, None], np.ones(len(measured)))
    return float(small), float(traffic)


def report(rows: Sequence[Row], say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Fit every device of Vidur's profiles."""
    fits = {}
    for hardware, name in vidur.DEVICES.items():
        mine = [row for row in rows if row.hardware == hardware and row.system in vidur.SYSTEMS]
        device = load_device(name)
        calibration = [row for row in mine if vidur.is_calibration(row)]
        if not calibration or not isinstance(device, AnalyticDevice):
            continue
        say(f"{name}: {len(calibration)} rows")
        values = fit(device, samples(calibration))
        small, traffic = fit_small_kernels(device, calibration)
        values |= {"seconds_per_small_kernel": small, "elementwise_traffic": traffic}
        inside = np.abs(errors(device, samples(calibration), values))
        outside = np.abs(left_out(device, samples(mine)))
        values |= {
            "mape": float(inside.mean()),
            "left_out_mape": float(outside.mean()),
            "left_out_90": float(np.quantile(outside, 0.9)),
        }
        fits[name] = values
    return fits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="a file like published_dev.json")
    options = parser.parse_args()
    fits = report(read_rows(options.rows), lambda line: print(line, file=sys.stderr))
    json.dump(fits, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
