"""How well kernel tables predict what was left out of them, and another project's measurements.

    pip install 'specplan[silicon]'
    python benchmarks/kernel_tables.py --rows ../shared/data/published_dev.json

Per system and stack, mean relative errors in percent. Products, attention and all-reduce: each
measured size from its two neighbours on one axis, twice as far apart as in use; the worst axis
that a model's sizes fall between (n and k; pairs and length; message). Experts: each family from
the nearest other one. Vidur: per-op times of Llama-2-7B, nothing calibrated; share of them inside
of the 90 % intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specplan.cost_models.devices.silicon.attention import Kind
from specplan.cost_models.devices.silicon.device import ELSEWHERE_ERROR
from specplan.cost_models.devices.silicon.experts import Experts
from specplan.cost_models.devices.silicon.grid import Grid
from specplan.cost_models.devices.silicon.package import list_systems, systems_folder
from specplan.cost_models.devices.silicon.products import Products
from specplan.cost_models.devices.silicon.tables import KernelTables

VIDUR_SYSTEMS = {"a100_sxm": "A100", "h100_sxm": "H100"}
HIDDEN, INNER = 4096, 11008  # Llama-2-7B


def of_axes(grid: Grid | None, axes: Sequence[int], limits: Sequence[tuple[float, float]]) -> float:
    """Mean error of cells left out, on the worst of some axes, within limits of all sizes."""
    if grid is None:
        return float("nan")
    inside = np.ix_(
        *(
            (np.exp(axis) >= low) & (np.exp(axis) <= high)
            for axis, (low, high) in zip(grid.axes, limits, strict=True)
        )
    )
    return max(float(np.nanmean(grid.left_out(axis)[inside])) for axis in axes)


def of_families(experts: Experts | None) -> float:
    """Mean error of families that are left out, over their tokens."""
    if experts is None:
        return float("nan")
    errors = []
    for family, grid in experts.grids.items():
        rest = {other: its_grid for other, its_grid in experts.grids.items() if other != family}
        others = Experts(experts.sheet, experts.format, rest, experts.source)
        tokens = np.exp(grid.axes[0])
        measured, _ = experts.seconds(family, tokens)
        predicted, _ = others.seconds(family, tokens)
        errors.append(np.abs(predicted / measured - 1.0))
    return float(np.mean(np.concatenate(errors)))


def of_vidur(products: Products, rows: Sequence[Any], hardware: str) -> dict[str, float]:
    """Mean error, bias and coverage on the per-op times of Vidur's profiles."""
    errors, inside = [], []
    for row in rows:
        if row["metric"] != "layer_gemm_time" or row["hardware"] != hardware:
            continue
        parts, tokens = row["setting"]["tp"], row["setting"]["num_tokens"]
        sizes = {
            "attn_pre_proj": (HIDDEN, 3 * HIDDEN // parts),
            "attn_post_proj": (HIDDEN // parts, HIDDEN),
            "mlp_up_proj": (HIDDEN, 2 * INNER // parts),
            "mlp_down_proj": (INNER // parts, HIDDEN),
        }
        for name, microseconds in json.loads(row["note"])["per_op"].items():
            inputs, outputs = sizes[name]
            seconds, reading = products.seconds(tokens, outputs, inputs)
            errors.append(float(seconds) / (1e-6 * microseconds) - 1.0)
            inside.append(abs(errors[-1]) <= np.hypot(reading.error, ELSEWHERE_ERROR))
    return {
        "vidur_mape": float(np.mean(np.abs(errors))),
        "vidur_bias": float(np.mean(errors)),
        "vidur_inside": float(np.mean(inside)),
    }


def score(tables: KernelTables, rows: Sequence[Any]) -> dict[str, float]:
    """All errors of one system and stack."""
    products, attention, reduction = (
        tables.products("bfloat16"),
        tables.attention(),
        tables.reduction(),
    )
    sizes = (512.0, 16384.0)
    errors = {
        "products": of_axes(products.grid if products else None, (1, 2), ((1, 2048), sizes, sizes)),
        "experts": of_families(tables.experts("bfloat16")),
    }
    kinds: tuple[Kind, ...] = ("decode", "prompt")
    for kind in kinds:
        grid = attention.grids.get((kind, 128, "bfloat16")) if attention else None
        errors[kind] = of_axes(grid, (1, 2), ((1, 16), (8, 4096), (128, 65536)))
    if reduction is not None:
        grids = reduction.grids.values()
        errors["all_reduce"] = max(of_axes(grid, (0,), ((1e3, 1e9),)) for grid in grids)
    hardware = VIDUR_SYSTEMS.get(tables.system)
    if hardware and rows and products is not None:
        errors |= of_vidur(products, rows, hardware)
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=Path, help="published rows with Vidur's profiles")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = json.loads(options.rows.read_text(encoding="utf-8")) if options.rows else []
    folder = systems_folder()
    scores = {
        name: score(KernelTables.of(folder, *name.split("/")), rows)
        for name in list_systems(folder)
    }
    if options.json:
        print(json.dumps({"scores": scores}, indent=1))
        return 0
    for name, errors in scores.items():
        print(name, "  ".join(f"{key} {100 * value:.1f}" for key, value in errors.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
