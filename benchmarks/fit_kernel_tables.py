"""Fit the constants of device files to kernel tables that others measured, and print them.

    pip install 'specplan[silicon]'
    python benchmarks/fit_kernel_tables.py --json

For devices that no published per-op profile covers. Matrix products: the form of
`cost_models/devices/matrix_time.py`, bfloat16 under vLLM; mean |log error| is minimised by
differential evolution on two thirds of the widths (outputs, inputs), and the error stated is that
of the last third. Number formats: what large products reach of their peak, relative to bfloat16.
Attention: the form of `cost_models/devices/kernel_time.py` on head width 128, a third of the rows
left out.
All-reduce: latency and bandwidth on the most devices that were measured in a node.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import differential_evolution, least_squares

from specplan.cost_models.cost import Matrix
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.matrix_time import Tiling
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.devices.silicon.attention import Attention, AttentionSize
from specplan.cost_models.devices.silicon.collectives import Reduction
from specplan.cost_models.devices.silicon.device import SHEET_OF_SYSTEM
from specplan.cost_models.devices.silicon.package import systems_folder
from specplan.cost_models.devices.silicon.products import Products
from specplan.cost_models.devices.silicon.tables import KernelTables

Array = npt.NDArray[np.float64]
STACK = "vllm"
STACKS = ("vllm", "sglang", "trtllm")
ROWS = 4096
WIDTHS = (512, 16384)
COMPUTE_BOUND_SECONDS = 200e-6
BOUNDS = {
    "memory_efficiency": (0.5, 1.0),
    "compute_efficiency": (0.4, 1.0),
    "seconds_per_launch": (2e-6, 12e-6),  # an empty kernel in a graph takes about 2 us
    "tile_half_area": (0.0, 16e3),
}


@dataclass(frozen=True)
class Sample:
    """One width of product over all measured rows: sizes, bytes moved, seconds."""

    matrix: Matrix
    moved: Array
    measured: Array


def samples(products: Products) -> list[Sample]:
    """All widths of language models' layers."""
    m, n, k = (np.exp(axis) for axis in products.grid.axes)
    rows, form, taken = m[m <= ROWS], products.format, []
    for outputs in n[(n >= WIDTHS[0]) & (n <= WIDTHS[1])]:
        for inputs in k[(k >= WIDTHS[0]) & (k <= WIDTHS[1])]:
            measured, _ = products.seconds(rows, float(outputs), float(inputs))
            moved = form.weight * outputs * inputs + 2.0 * rows * (outputs + inputs)
            matrix = Matrix(rows, round(inputs), round(outputs))
            taken.append(Sample(matrix, moved, measured))
    return taken


def errors(device: AnalyticDevice, data: list[Sample], values: Array) -> Array:
    """Relative errors under the constants of `BOUNDS`, in their order."""
    memory, compute, launch, area = values
    flops, bandwidth = compute * device.peak_flops["bfloat16"], memory * device.memory_bandwidth
    tiling = Tiling(device.processors, flops, bandwidth, area)
    return np.concatenate(
        [(launch + tiling.seconds(x.matrix, x.moved)) / x.measured - 1.0 for x in data]
    )


def fit_products(device: AnalyticDevice, products: Products) -> dict[str, float]:
    """Constants of matrix products, and their errors on widths left out."""
    data = samples(products)
    order = np.random.default_rng(0).permutation(len(data))
    inside = [data[i] for i in order[: len(data) // 3 * 2]]
    outside = [data[i] for i in order[len(data) // 3 * 2 :]]

    def loss(values: Array) -> float:
        return float(np.mean(np.abs(np.log1p(errors(device, inside[::2], values)))))

    result = differential_evolution(
        loss, list(BOUNDS.values()), seed=0, maxiter=30, popsize=8, tol=1e-5
    )
    left_out = np.abs(errors(device, outside, result.x))
    shipped = np.array([getattr(device, name) for name in BOUNDS])
    constants = {name: float(value) for name, value in zip(BOUNDS, result.x, strict=True)}
    return constants | {
        "products_left_out_mape": float(left_out.mean()),
        "products_left_out_90": float(np.quantile(left_out, 0.9)),
        "products_ideal_mape": float(np.mean([np.abs(ideal(device, x)).mean() for x in outside])),
        "products_shipped_mape": float(np.abs(errors(device, outside, shipped)).mean()),
    }


def ideal(device: AnalyticDevice, sample: Sample) -> Array:
    """Relative errors of the roofline without any constants."""
    matrix = sample.matrix
    flops = 2.0 * matrix.rows * matrix.inputs * matrix.outputs
    compute = flops / device.peak_flops["bfloat16"]
    least: Array = np.maximum(compute, sample.moved / device.memory_bandwidth)
    return least / sample.measured - 1.0


def fit_format(system: str, form: str) -> float | None:
    """Part of a format's peak that large products reach, over that of bfloat16; of all stacks."""
    ratios = []
    for stack in STACKS:
        tables = KernelTables.of(systems_folder(), system, stack)
        narrow, plain = tables.products(form), tables.products("bfloat16")
        if narrow and plain:
            ratios.append(reached(narrow) / reached(plain))
    return float(np.median(ratios)) if ratios else None


def reached(products: Products) -> float:
    """Part of the peak that products reach that take longer than `COMPUTE_BOUND_SECONDS`."""
    rows, shares = np.array([4096.0, 8192.0]), []
    for width in (8192.0, 12288.0, 16384.0):
        seconds, _ = products.seconds(rows, width, width)
        least = 2.0 * rows * width**2 / products.sheet.peak(products.format.math)
        shares.append((least / seconds)[least > COMPUTE_BOUND_SECONDS])
    return float(np.median(np.concatenate(shares)))


def sizes(kind: str) -> Iterator[AttentionSize]:
    """Decoding and prompts as they are served: 8 to 1024 pairs, lengths from 128."""
    for group in (1, 2, 4, 8):
        for pairs in (8, 16, 32, 64, 128, 256, 512, 1024):
            for length in (128, 256, 512, 1024, 2048, 4096, 8192, 16384):
                if pairs * length <= 2**21:
                    tokens = 1 if kind == "decode" else length
                    yield AttentionSize(
                        pairs / 8, tokens, length - tokens, 8 * group, 8, 128, "bfloat16"
                    )


def fit_attention(device: AnalyticDevice, attention: Attention, kind: str) -> dict[str, float]:
    """Launch, parts of peak and bandwidth, and the error on rows left out."""
    rows = []
    for size in sizes(kind):
        predicted = attention.seconds(size)
        if predicted is None or predicted[1].outside:
            continue
        pairs = size.tokens * (size.reach + (size.tokens + 1) / 2.0)
        flops = 4.0 * size.batch * size.heads * size.head_dim * pairs
        cached = 4.0 * size.batch * size.kv_heads * size.head_dim * (size.reach + size.tokens)
        moved = cached + 4.0 * size.batch * size.tokens * size.heads * size.head_dim
        rows.append((flops, moved, float(predicted[0])))
    flops, moved, measured = np.array(rows).T
    compute = flops / device.peak_flops["bfloat16"]
    memory = moved / device.memory_bandwidth
    outside = np.random.default_rng(0).permutation(len(rows)) % 3 == 0

    def residuals(logs: Array, chosen: npt.NDArray[np.bool_]) -> Array:
        launch, e_f, e_b = np.exp(logs)
        times = launch + np.hypot(compute[chosen] / e_f, memory[chosen] / e_b)
        return np.asarray(np.log(times / measured[chosen]))

    result = least_squares(
        lambda logs: residuals(logs, ~outside),
        np.log([8e-6, 0.5, 0.8]),
        bounds=(np.log([1e-7, 0.02, 0.02]), np.log([5e-5, 1.0, 1.0])),
        loss="soft_l1",
        f_scale=0.1,
    )
    launch, e_f, e_b = np.exp(result.x)
    error = np.abs(np.expm1(residuals(result.x, outside)))
    return {
        f"{kind}_seconds_per_launch": float(launch),
        f"{kind}_compute_efficiency": float(e_f),
        f"{kind}_memory_efficiency": float(e_b),
        f"{kind}_left_out_mape": float(error.mean()),
    }


def fit_links(reduction: Reduction) -> dict[str, float]:
    """Latency and bandwidth of an all-reduce on all numbers of devices that a node holds."""
    moved = np.concatenate([np.exp(grid.axes[0]) for grid in reduction.grids.values()])
    devices = np.concatenate([np.full(len(g.axes[0]), n) for n, g in reduction.grids.items()])
    chosen = devices == devices.max()
    pairs = [
        reduction.seconds(int(n), m) for n, m in zip(devices[chosen], moved[chosen], strict=True)
    ]
    measured = np.array([float(pair[0]) for pair in pairs if pair is not None])

    def residuals(logs: Array) -> Array:
        latency, bandwidth = np.exp(logs)
        return np.asarray(np.log((latency + moved[chosen] / bandwidth) / measured))

    result = least_squares(residuals, np.log([1e-5, 1e11]), loss="soft_l1", f_scale=0.1)
    latency, bandwidth = np.exp(result.x)
    return {
        "seconds_per_collective": float(latency),
        "link_bandwidth": float(bandwidth),
        "collectives_devices": float(devices.max()),
        "collectives_mape": float(np.abs(np.expm1(residuals(result.x))).mean()),
    }


def report() -> dict[str, dict[str, float]]:
    """Constants of every device that has tables."""
    fits = {}
    for system, name in SHEET_OF_SYSTEM.items():
        device = load_device(name)
        tables = KernelTables.of(systems_folder(), system, STACK)
        products, attention = tables.products("bfloat16"), tables.attention()
        assert isinstance(device, AnalyticDevice) and products and attention
        values = fit_products(device, products)
        for math, form in (("fp8", "fp8"), ("fp4", "nvfp4")):
            part = fit_format(system, form)
            values |= {f"format_efficiency_{math}": part} if part else {}
        for kind in ("decode", "prompt"):
            values |= fit_attention(device, attention, kind)
        reduction = tables.reduction()
        values |= fit_links(reduction) if reduction else {}
        fits[name] = values
        print(name, "done", file=sys.stderr)
    return fits


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    fits = report()
    if options.json:
        print(json.dumps(fits, indent=1))
        return 0
    for name, values in fits.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:28} {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
