"""Score the cost and acceptance models on published numbers that nobody here made.

    python benchmarks/published.py --rows ../shared/data/published_dev.json --json

Constants that are calibrated use the rows that `published_rows/` names as calibration, or the
shipped values where those are absent; such rows are never scored. Errors are fractions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import published_rows
from published_rows.markdown import update
from published_rows.row import Prediction, Row, Unpredicted, read_rows
from published_rows.score import Score, scores
from specplan.ir.errors import SpecplanError, UsageError


def find_modules() -> list[ModuleType]:
    """Every file of `published_rows/` that answers for systems."""
    names = sorted(item.name for item in pkgutil.iter_modules(published_rows.__path__))
    modules = [importlib.import_module(f"published_rows.{name}") for name in names]
    return [module for module in modules if hasattr(module, "SYSTEMS")]


def predict(rows: Sequence[Row]) -> tuple[list[Prediction], list[Unpredicted]]:
    """All predictions, and the reason for each row that has none.

    Raises:
        UsageError: two files predict one row.
    """
    predicted: list[Prediction] = []
    reasons: dict[int, str] = {}
    done: set[int] = set()
    for module in find_modules():
        mine = [row for row in rows if row.system in module.SYSTEMS]
        for item in module.predictions(mine):
            if isinstance(item, Unpredicted):
                reasons.setdefault(id(item.row), item.reason)
                continue
            if item.row.number in (None, 0.0):
                reasons[id(item.row)] = "no number to compare with"
                continue
            if id(item.row) in done and not item.row.derived:
                raise UsageError(
                    "two predictions for one row",
                    where=f"{module.__name__}: {item.row.system}, {item.row.label}",
                    remedy="Let each file answer for the rows of its own source.",
                )
            done.add(id(item.row))
            predicted.append(item)
    rest = [
        Unpredicted(row, reasons.get(id(row), "no model of this system"))
        for row in rows
        if id(row) not in done
    ]
    return predicted, rest


def unscored(items: Sequence[Unpredicted]) -> list[dict[str, Any]]:
    """Rows without a prediction, counted by system, metric, hardware and reason."""
    keys = Counter((i.row.system, i.row.metric, i.row.hardware, i.reason) for i in items)
    names = ("system", "metric", "hardware", "reason")
    return [
        dict(zip(names, key, strict=True)) | {"count": count} for key, count in sorted(keys.items())
    ]


def print_table(scored: Sequence[Score], rest: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Predictions of published numbers")
    for name in ("system", "metric", "hardware"):
        table.add_column(name, overflow="fold")
    for name in ("rows", "MAPE", "median", "worst", "bias", "other"):
        table.add_column(name, justify="right")
    for score in scored:
        numbers = (score.mape, score.median_error, score.worst, score.bias)
        other = [f"{score.calibration_count} calibration"] if score.calibration_count else []
        if score.sign_agreement is not None:
            other.append(f"sign {score.sign_agreement:.0%}")
        if score.kendall_tau is not None:
            other.append(f"tau {score.kendall_tau:.2f}")
        table.add_row(
            score.system,
            score.metric,
            score.hardware,
            str(score.count),
            *("-" if number is None else f"{number:.1%}" for number in numbers),
            ", ".join(other),
        )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    left = Table(title="Not predicted")
    for name in ("system", "metric", "count", "reason"):
        left.add_column(name, overflow="fold")
    for entry in rest:
        left.add_row(*(str(entry[key]) for key in ("system", "metric", "count", "reason")))
    console.print(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="a file like published_dev.json")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--system", help="only systems whose name contains this")
    parser.add_argument("--markdown", type=Path, help="rewrite the tables of this page")
    parser.add_argument("--details", action="store_true", help="with --json: every prediction")
    options = parser.parse_args()
    rows = read_rows(options.rows)
    if options.system:
        rows = [row for row in rows if options.system.lower() in row.system.lower()]
    predicted, rest = predict(rows)
    scored, missing = scores(predicted), unscored(rest)
    if options.markdown:
        update(options.markdown, predicted, scored)
    if not options.json:
        print_table(scored, missing)
        return
    document: dict[str, Any] = {"scores": [asdict(score) for score in scored], "unscored": missing}
    if options.details:
        document["predictions"] = [
            asdict(item.row)
            | {"predicted": item.predicted, "calibration": item.calibration, "group": item.group}
            for item in predicted
        ]
    json.dump(document, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    try:
        main()
    except SpecplanError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
