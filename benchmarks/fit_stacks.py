"""Fit the figures of stack files to public measurements, and print them.

    python benchmarks/fit_stacks.py --rows ../shared/data/published_dev.json

- `tensorrt-llm`, `vllm`: the calibration rows of `published_rows/llm_inference_bench.py`, by least
  squares on the logarithms with a loss that outliers do not rule; then what memory a prefill
  takes, from a few values, by which batches run in one wave.
- `gpt-fast`: operations to widen a weight from its int8 row, and the latency of the A100's
  all-reduce from its row on 8 GPUs.
- `magicdec`: latency and bandwidth of all-reduces, see `published_rows/magicdec.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, least_squares

from published_rows import gpt_fast, llm_inference_bench, magicdec
from published_rows.llm_inference_bench import Case, Framework
from published_rows.row import Row, read_rows
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice

Array = npt.NDArray[np.float64]
Bounds = dict[str, tuple[float, float, float]]
Pairs = list[tuple[float, Case]]

SHARED: Bounds = {
    # start, lower, upper bound
    "attention_efficiency": (1.0, 0.6, 1.11),
    "attention_vector_efficiency": (0.3, 0.05, 1.0),
    "seconds_per_forward": (1e-4, 0.0, 5e-3),
    "seconds_per_sequence": (1e-5, 0.0, 2e-4),
    "collective_latency": (1.0, 0.0, 5.0),
}
BOUNDS: dict[str, Bounds] = {
    "AR TensorRT-LLM": SHARED | {"attention_block_share": (2.5, 1.0, 20.0)},
    "AR vLLM": SHARED,
}
TOKEN_COPIES, RESERVES = (0.0, 0.25, 0.5, 0.7, 0.85, 1.0), (0.5e9, 1e9, 1.5e9, 2.5e9)
AS_GOOD = 1.01
DISCRETE_ERROR = 0.3
"""Largest error that counts for the choice of memory: a wave more or less is all that matters."""


def fit_framework(framework: Framework, pairs: Pairs, bounds: Bounds) -> Framework:
    """The figures of the stack, then the memory, then the figures again."""
    fitted = _fit_stack(framework, pairs, bounds)
    if framework.token_copies:
        fitted = _fit_memory(fitted, pairs)
    return _fit_stack(fitted, pairs, bounds)


def _fit_memory(framework: Framework, pairs: Pairs) -> Framework:
    """The least reserve among those that explain the waves as well as the best does."""
    scored = []
    for reserve, copies in product(RESERVES, TOKEN_COPIES):
        one = replace(framework, token_copies=copies, reserve_bytes=reserve)
        scored.append((np.minimum(np.abs(misfits(one, pairs)), DISCRETE_ERROR).mean(), one))
    best = min(score for score, _ in scored)
    return next(one for score, one in scored if score <= AS_GOOD * best)


def misfits(framework: Framework, pairs: Pairs) -> Array:
    """Logarithms of predicted over measured."""
    return np.array([np.log(case.seconds(framework) / value) for value, case in pairs])


def _fit_stack(framework: Framework, pairs: Pairs, bounds: Bounds) -> Framework:
    starts, lower, upper = np.array(list(bounds.values())).T

    def of(values: Array) -> Framework:
        changed = dict(zip(bounds, map(float, values), strict=True))
        return replace(framework, stack=replace(framework.stack, **changed))  # type: ignore[arg-type]

    result = least_squares(
        lambda values: misfits(of(values), pairs),
        starts,
        bounds=(lower, upper),
        x_scale=upper - lower,
        loss="soft_l1",
        f_scale=0.05,
        diff_step=3e-3,
        max_nfev=20,
    )
    return of(result.x)


def report_frameworks(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Both frameworks of LLM-Inference-Bench."""
    fits = {}
    for system, framework in llm_inference_bench.frameworks().items():
        mine = [row for row in rows if row.system == system]
        named = [row for row in mine if llm_inference_bench.is_calibration(row)]
        pairs = [
            (row.number, case) for row in named if (case := Case.of(row)) and row.number is not None
        ]
        if not pairs:
            continue
        fitted = fit_framework(framework, pairs, BOUNDS[system])
        fits[fitted.stack.name] = {name: getattr(fitted.stack, name) for name in BOUNDS[system]} | {
            "token_copies": fitted.token_copies,
            "reserve_bytes": fitted.reserve_bytes,
            "calibration_mape": float(np.mean(np.abs(np.expm1(misfits(fitted, pairs))))),
        }
    return fits


def report_gpt_fast(rows: Sequence[Row]) -> dict[str, float]:
    """Two constants, each the root of one row's error."""
    device = load_device("a100-sxm-80gb@gpt-fast")
    assert isinstance(device, AnalyticDevice)
    changes: dict[str, Callable[[float], AnalyticDevice]] = {
        "dequantise_operations": lambda value: replace(
            device, stack=replace(device.stack, dequantise_operations=value)
        ),
        "seconds_per_collective": lambda value: replace(device, seconds_per_collective=value),
    }
    upper = {"dequantise_operations": 10.0, "seconds_per_collective": 60e-6}
    efficiencies = {}
    for row in rows:
        name = gpt_fast.calibrates(row)
        value = row.number
        if not name or value is None:
            continue

        def error(constant: float, row: Row = row, name: str = name, value: float = value) -> float:
            seconds = gpt_fast.step_seconds(row, changes[name](constant))
            return float(np.log((seconds or np.nan) * value))

        efficiencies[name] = float(brentq(error, 0.0, upper[name]))
    return efficiencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="a file like published_dev.json")
    rows = read_rows(parser.parse_args().rows)
    fits: dict[str, dict[str, float]] = report_frameworks(rows)
    fits["gpt-fast"] = report_gpt_fast(rows)
    mine = [row for row in rows if row.system in magicdec.SYSTEMS]
    for gpu in magicdec.DEVICES:
        if magicdec.calibration_rows(gpu, mine):
            names = ("seconds_per_collective", "link_bandwidth")
            fits[f"magicdec, {gpu}"] = dict(zip(names, magicdec.calibrate(gpu, mine), strict=True))
    json.dump(fits, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
