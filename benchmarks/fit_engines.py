"""Fit the figures of an engine's stack, or of a device under it, to rows that may set constants.

    python benchmarks/fit_engines.py --rows FILE --engine sglang --configs DIR
    python benchmarks/fit_engines.py ... --device mi300x,mi325x

Robust least squares on logarithms of times per output token. `engine_rows/split.py` decides, by a
hash of the source, which rows are never read here. With `--device` the stack stays as it ships, and
figures of these data sheets are fitted; without, rows of AMD's devices are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from engine_rows.cases import Case, engine_of, read_case
from engine_rows.split import sets_nothing
from scipy.optimize import least_squares
from serving_engines import SPEEDS, stack_of_row

from published_rows.row import Row, read_rows

Pair = tuple[Case, float]
Bounds = dict[str, tuple[float, float, float]]

STACK: Bounds = {
    # start, lower, upper bound
    "seconds_per_step": (1e-3, 0.0, 5e-3),
    "seconds_per_sequence": (1e-5, 0.0, 2e-4),
    "kernels_per_mixture": (4.0, 0.0, 40.0),
    "collective_latency": (1.5, 1.0, 3.0),
    "memory_efficiency": (0.95, 0.6, 1.05),
    "compute_efficiency": (0.8, 0.2, 1.0),
    "attention_efficiency": (1.0, 0.4, 1.11),
}
FEW: Bounds = {name: STACK[name] for name in ("seconds_per_step", "seconds_per_sequence")} | {
    "memory_efficiency": (0.95, 0.6, 1.02)
}
"""For engines with few rows: the rest is as it ships."""
DEVICE: Bounds = {
    "compute_efficiency": (0.7, 0.1, 1.0),
    "memory_efficiency": (0.75, 0.3, 0.95),
    "seconds_per_launch": (6e-6, 1e-6, 2e-5),
    "seconds_per_small_kernel": (4e-6, 1e-6, 2e-5),
}
FIRST_DATE = "2025-12"
"""Runs of InferenceX before that are of versions before the stack's."""
MOST_ROWS = 220


def pairs(rows: Sequence[Row], engine: str, configs: Path, devices: Sequence[str]) -> list[Pair]:
    """Cases with their measured seconds per token; at most `MOST_ROWS`, drawn at random."""
    cases: dict[tuple[Any, ...], Pair] = {}
    for row in rows:
        name = engine_of(row.system)
        if name is None or row.draft or sets_nothing(row) or row.setting.get("dp_attention"):
            continue
        stack = stack_of_row(name, row)
        amd = "mi3" in row.hardware.lower()
        named = any(one == row.hardware for one in devices)
        if stack != engine or (amd and not devices) or (devices and not named):
            continue
        if str(row.setting.get("date") or FIRST_DATE) < FIRST_DATE or row.positive is None:
            continue
        case = read_case(row, stack, configs)
        if isinstance(case, Case):
            seconds = case.batch / row.positive if row.metric in SPEEDS else row.positive
            key = (case.device.name, row.target, *row.setting.values(), round(seconds, 4))
            cases[key] = case, seconds
    chosen = list(cases.values())
    np.random.default_rng(0).shuffle(chosen)
    return chosen[:MOST_ROWS]


def fit(cases: Sequence[Pair], bounds: Bounds, change: Callable[..., Case]) -> dict[str, float]:
    """The figures within their bounds, and the median error that they leave."""
    starts, lower, upper = np.array(list(bounds.values())).T

    def misfits(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        changed = dict(zip(bounds, map(float, values), strict=True))
        return np.array([np.log(change(case, **changed).tpot() / t) for case, t in cases])

    result = least_squares(
        misfits,
        starts,
        bounds=(lower, upper),
        x_scale=upper - lower,
        loss="soft_l1",
        f_scale=0.1,
        diff_step=3e-3,
        max_nfev=12,
    )
    error = float(np.median(np.abs(np.expm1(misfits(result.x)))))
    return dict(zip(bounds, map(float, result.x), strict=True)) | {"median_error": error}


def of_stack(case: Case, **figures: float) -> Case:
    """The case under a stack with other figures."""
    stack = replace(case.device.stack, **figures)  # type: ignore[arg-type]
    return replace(case, device=replace(case.device, stack=stack))


def of_device(case: Case, **figures: float) -> Case:
    """The case on a device with other figures."""
    return replace(case, device=replace(case.device, **figures))  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--configs", type=Path, required=True)
    parser.add_argument("--device", default="", help="data sheets to fit, as rows name them")
    options = parser.parse_args()
    devices = [name for name in options.device.split(",") if name]
    cases = pairs(read_rows(options.rows), options.engine, options.configs, devices)
    few = options.engine.startswith("vllm")
    bounds = DEVICE if devices else FEW if few else STACK
    fitted = fit(cases, bounds, of_device if devices else of_stack)
    json.dump({"rows": len(cases)} | fitted, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
