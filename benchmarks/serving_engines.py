"""How well are engines priced? The `engines` part of `serving.py`.

    python benchmarks/serving.py --rows FILE [--configs DIR] --json

Rows are those of `../shared/data/README.md`: published figures (`system`, `metric`, `hardware`,
`setting`, ...), of which times and speeds of vLLM, SGLang and TensorRT-LLM are predicted, and
measured settings of SGLang with EAGLE-3 heads, of which gains are predicted from accept length.
`engine_rows/split.py` says which sources could set a constant; `count` and `median_error` are of
the others, `fitted` of those.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from engine_rows.cases import engine_of, read_case
from engine_rows.gains import gain_errors
from engine_rows.split import sets_nothing

from published_rows import llm_inference_bench
from published_rows.row import Prediction, Row
from specplan.ir.errors import SpecplanError, UsageError

TIMES = {
    "tpot": 1.0,
    "median_tpot": 1.0,
    "mean_tpot": 1.0,
    "tpot_s": 1.0,
    "tpot_ms": 1e-3,
    "median_tpot_ms": 1e-3,
    "mean_tpot_ms": 1e-3,
    "time_per_output_token": 1.0,
}
"""Metrics that are a time per output token, and their unit in seconds where the row states none."""
_UNITS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3}
SPEEDS = ("tokens_per_s_total", "output_throughput")
SKIPPED_DRAFTS = "speculation without a stated accept length"


@dataclass(frozen=True)
class Scored:
    """A predicted row: predicted over measured, less 1."""

    engine: str
    metric: str
    error: float
    set_nothing: bool


def score_file(path: Path, configs: Path | None = None) -> dict[str, Any]:
    """Errors by engine and metric, and why other rows are not predicted.

    Args:
        path: a JSON list of rows, or `{"rows": [...]}`.
        configs: folder of `<name>/config.json`; default `model_configs` beside the file.

    Raises:
        UsageError: no such file, or not a list of rows.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read rows ({error})", where=str(path)) from error
    entries = data.get("rows") if isinstance(data, dict) else data
    if not isinstance(entries, list):
        raise UsageError("not a list of rows", where=str(path))
    beside = path.parent / "model_configs"
    configs = configs or (beside if beside.is_dir() else None)
    rows = [Row.parse(entry) for entry in entries if "accept_length" not in entry]
    runs = [entry for entry in entries if "accept_length" in entry]
    unpredicted: dict[str, int] = defaultdict(int)
    scored = list(_scored(rows, configs, unpredicted))
    scored += [
        Scored("sglang", "gain", error, set_nothing)
        for error, set_nothing in gain_errors(runs, configs, unpredicted)
    ]
    return {"engines": summarise(scored), "unpredicted": dict(unpredicted)}


def show(path: Path, configs: Path | None, *, as_json: bool) -> int:
    """Print the scores of a file; returns the exit code."""
    try:
        document = score_file(path, configs)
    except SpecplanError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if as_json:
        print(json.dumps(document))
        return 0
    print(f"{'engine':20} {'metric':20} {'unseen':>8} {'median':>7} {'fitted':>7} {'median':>7}")
    for one in document["engines"]:
        errors = [one["median_error"], one["fitted_error"]]
        unseen, fitted = ("-" if value is None else f"{value:.1%}" for value in errors)
        print(
            f"{one['engine']:20} {one['metric']:20} {one['count']:8} {unseen:>7} "
            f"{one['fitted']:7} {fitted:>7}"
        )
    for reason, count in sorted(document["unpredicted"].items(), key=lambda item: -item[1]):
        print(f"{count:5} not predicted: {reason}")
    return 0


def summarise(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Median errors by engine and metric."""
    groups: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for one in scored:
        groups[one.engine, one.metric].append(one)
    return [_summary(*key, group) for key, group in sorted(groups.items())]


def _summary(engine: str, metric: str, group: Sequence[Scored]) -> dict[str, Any]:
    unseen = np.array([one.error for one in group if one.set_nothing])
    fitted = np.array([one.error for one in group if not one.set_nothing])

    def median(errors: Any) -> float | None:
        return float(np.median(np.abs(errors))) if len(errors) else None

    return {
        "engine": engine,
        "metric": metric,
        "median_error": median(unseen),
        "count": len(unseen),
        "bias": float(np.median(unseen)) if len(unseen) else None,
        "within_25_percent": float((np.abs(unseen) <= 0.25).mean()) if len(unseen) else None,
        "fitted_error": median(fitted),
        "fitted": len(fitted),
    }


def _scored(
    rows: Sequence[Row], configs: Path | None, unpredicted: dict[str, int]
) -> Iterator[Scored]:
    latencies = [row for row in rows if row.system in llm_inference_bench.SYSTEMS]
    for outcome in llm_inference_bench.predictions(latencies):
        if isinstance(outcome, Prediction):
            engine = f"{engine_of(outcome.row.system)}-2024"
            metric = outcome.row.metric
            yield Scored(engine, metric, outcome.error, not outcome.calibration)
        else:
            unpredicted[outcome.reason] += 1
    for row in rows:
        if row.system in llm_inference_bench.SYSTEMS:
            continue
        scored = _predict(row, configs)
        if isinstance(scored, Scored):
            yield scored
        else:
            unpredicted[scored] += 1


def _predict(row: Row, configs: Path | None) -> Scored | str:
    engine = engine_of(row.system)
    if engine is None or row.positive is None:
        return "no engine of ours"
    if row.metric not in TIMES and row.metric not in SPEEDS:
        return f"the metric {row.metric}"
    if row.draft:
        return SKIPPED_DRAFTS
    case = read_case(row, stack_of_row(engine, row), configs)
    if isinstance(case, str):
        return case
    try:
        predicted = case.tpot() if row.metric in TIMES else case.batch / case.tokens_per_second()
    except SpecplanError as error:
        return error.what
    measured = row.positive * _UNITS.get(row.unit, TIMES.get(row.metric, 1.0))
    if row.metric in SPEEDS:
        measured = case.batch / row.positive
    return Scored(case.engine, "tpot", predicted / measured - 1.0, sets_nothing(row))


def stack_of_row(engine: str, row: Row) -> str:
    """The stack of the version that was run."""
    version = str(row.setting.get("engine_version") or "")
    return "vllm-0.7" if engine == "vllm" and version.startswith("0.7") else engine
