"""The tables of docs/accuracy.md, made from the predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from published_rows.row import Prediction
from published_rows.score import Score
from specplan.ir.errors import UsageError
from specplan.ir.files import write_atomic

RATIO = "step_cost_ratio"
BEGIN, END = "<!-- made by benchmarks/published.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Bar:
    """What a row of the first table is about.

    Attributes:
        title: in words.
        systems: whose predictions.
        metrics: which of them; empty for all.
        statistic: of the errors.
        target: what it should be, in words.
        beside: what the best published model of the kind reports.
        group: whose statistic is taken over its systems.
    """

    title: str
    systems: tuple[str, ...]
    metrics: tuple[str, ...]
    statistic: str
    target: str
    beside: str
    group: str = ""


GENZ = "GenZ 1.85 % decode, 2.73 % prefill (geometric means, efficiency fitted per platform)"
ROOFLINE = "ideal roofline 35-66 %"
TIMES = ("AR_time_per_step_TAR", "SD_time_per_token_TSD", "draft_time_total_gammaTD",
         "verify_time_TV")  # fmt: skip
BARS = (
    Bar("MagicDec, step and token times", ("MagicDec",), TIMES, "MAPE", "<= 8 %",
        "its own formula with its own step times: 2.6 %"),
    Bar("MagicDec, right side of speedup 1", ("MagicDec",), ("speedup",), "sign", "100 %", "-"),
    Bar("GEMMs of a layer, Vidur profiles", ("Vidur profile",), (), "MAPE", "<= 12 %", ROOFLINE),
    Bar("T5 speedups, Leviathan et al.", ("Leviathan SD",), ("speedup_measured",), "MAPE",
        "<= 15 %", "its own formula: 17.7 %, worst +47 %"),
    Bar("Spec-Bench, cost ratio of a round, worst method", (), (RATIO,), "worst",
        "<= 15 %", "none found", "Spec-Bench"),
    Bar("Spec-Bench, rank of methods on a machine", (), (RATIO,), "tau",
        ">= 0.8", "none found", "Spec-Bench"),
    Bar("gpt-fast, plain decoding", ("gpt-fast AR",), (), "median", "<= 15 %", GENZ),
    Bar("LLM-Inference-Bench, TensorRT-LLM", ("AR TensorRT-LLM",), (), "median", "<= 15 %",
        "Vidur < 9 % (operators profiled); LIMINAL 7.6 %"),
    Bar("LLM-Inference-Bench, vLLM", ("AR vLLM",), (), "median", "<= 15 %",
        "a leave-one-host-out study: 11.6, 16.8 and 36 %"),
)  # fmt: skip


def update(path: Path, predictions: Sequence[Prediction], scores: Sequence[Score]) -> None:
    """Replace what stands between the marks of a page.

    Raises:
        UsageError: the page has no such marks.
    """
    text = path.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise UsageError("no marks between which tables go", where=str(path), remedy=f"Add {BEGIN}")
    tables = f"\n\n{bars(predictions, scores)}\n{systems(predictions)}\n"
    write_atomic(path, before + BEGIN + tables + END + after)


def bars(predictions: Sequence[Prediction], scores: Sequence[Score]) -> str:
    """The first table: what was asked for, what is reached, what others report."""
    lines = ["| what | rows | | ours | asked | published |", "|---|---:|---|---:|---:|---|"]
    for bar in BARS:
        mine = [
            item
            for item in predictions
            if not item.calibration
            and (item.row.system in bar.systems or (bar.group and item.group.startswith(bar.group)))
            and (not bar.metrics or item.row.metric in bar.metrics)
        ]
        if mine:
            value = _statistic(bar, mine, scores)
            cells = (bar.title, len(mine), bar.statistic, value, bar.target, bar.beside)
            lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def systems(predictions: Sequence[Prediction]) -> str:
    """The second table: every system and metric, over all hardware."""
    by_metric: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    ratios = {(i.row.system, i.row.hardware) for i in predictions if i.row.metric == RATIO}
    for item in predictions:
        if item.row.metric != "speedup" or (item.row.system, item.row.hardware) not in ratios:
            by_metric[item.row.system, item.row.metric].append(item)
    lines = [
        "| system | metric | rows | MAPE | median | worst | bias | calibration rows |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (system, metric), items in sorted(by_metric.items()):
        errors = [item.error for item in items if not item.calibration]
        if not errors:
            continue
        sizes = [abs(error) for error in errors]
        numbers = (fmean(sizes), median(sizes), max(sizes))
        cells = (
            *(system, f"`{metric}`", len(errors)),
            *(f"{number:.1%}" for number in numbers),
            *(f"{fmean(errors):+.1%}", len(items) - len(errors)),
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _statistic(bar: Bar, items: Sequence[Prediction], scores: Sequence[Score]) -> str:
    if bar.statistic == "tau":
        taus = [
            score.kendall_tau
            for score in scores
            if score.group and score.system.startswith(bar.group) and score.kendall_tau is not None
        ]
        return ", ".join(f"{tau:.2f}" for tau in taus)
    if bar.statistic == "sign":
        clear = [i for i in items if abs((i.row.number or 1.0) - 1.0) > 0.10]
        right = sum((i.predicted > 1.0) == ((i.row.number or 1.0) > 1.0) for i in clear)
        return f"{right} of {len(clear)}"
    sizes = [abs(item.error) for item in items]
    pick: dict[str, Callable[[list[float]], float]] = {
        "MAPE": fmean, "median": median, "worst": max,
    }  # fmt: skip
    return f"{pick[bar.statistic](sizes):.1%}"
