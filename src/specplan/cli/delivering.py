"""Where the findings of `specplan check` go: terminal, files, annotations, and the exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.output import print_json
from specplan.ir.errors import RegressionError, UsageError
from specplan.ir.files import write_atomic

if TYPE_CHECKING:
    from specplan.checks.findings import Findings

MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write a Markdown summary.")
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")
]
BenchmarkOption = Annotated[
    Path | None,
    typer.Option(
        "--benchmark-json",
        metavar="FILE",
        help="Write JSON for github-action-benchmark (customSmallerIsBetter).",
    ),
]
BencherOption = Annotated[
    Path | None,
    typer.Option("--bencher-json", metavar="FILE", help="Write Bencher Metric Format JSON."),
]
GithubOption = Annotated[
    bool,
    typer.Option(
        "--github",
        help="Annotate on stderr, and add to the file that GITHUB_STEP_SUMMARY names.",
    ),
]


@dataclass(frozen=True)
class Destinations:
    """Where findings go beside the terminal.

    Attributes:
        markdown: file for a Markdown summary.
        junit: file for JUnit XML.
        benchmark: file for github-action-benchmark.
        bencher: file for Bencher.
        github: annotate, and add to the step summary.
        json: stdout gets one JSON document instead of text.
    """

    markdown: Path | None
    junit: Path | None
    benchmark: Path | None
    bencher: Path | None
    github: bool
    json: bool


def deliver(findings: Findings, to: Destinations, remedy: str) -> None:
    """Write and print findings.

    Args:
        findings: of one run.
        to: where they go.
        remedy: what to do about a regression.

    Raises:
        RegressionError: something is worse than allowed; everything is written by then.
    """
    from specplan.checks import outputs

    texts: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (to.markdown, lambda: outputs.markdown(findings)),
        (to.junit, lambda: outputs.junit(findings)),
        (to.benchmark, lambda: _json(outputs.benchmark_json(findings))),
        (to.bencher, lambda: _json(outputs.bencher_json(findings))),
    )
    for path, text in texts:
        if path is not None:
            write_atomic(path, text())
    if to.json:
        print_json(findings.as_dict())
    else:
        _print(findings)
    if to.github:
        sys.stderr.write(outputs.workflow_commands(findings))
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with Path(summary).open("a", encoding="utf-8") as file:  # other steps write there too
                file.write(outputs.markdown(findings))
    if findings.regressed:
        worse = "; ".join(f"{item.name}: {item.summary}" for item in findings.regressed)
        raise RegressionError(worse, where=f"specplan check {findings.kind}", remedy=remedy)


def fraction(text: str) -> float:
    """Read `5%` or `0.05` as a part between 0 and 1.

    Raises:
        UsageError: it is neither.
    """
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1.0:
        raise UsageError(
            f"'{text}' is no part of something", where="--threshold", remedy="Write 5% or 0.05."
        )
    return value


def threshold(text: str) -> float:
    """Read `median:5%`, or `5%` alone.

    Raises:
        UsageError: another statistic than the median, or no part of something.
    """
    name, _, part = text.rpartition(":")
    if name not in ("", "median"):
        raise UsageError(
            f"'{name}' is not compared: single runs are too noisy, and a mean is moved by one",
            where="--threshold",
            remedy=f"Write median:{part}.",
        )
    return fraction(part)


def _json(document: object) -> str:
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _print(findings: Findings) -> None:
    for item in findings.items:
        print(f"{item.status:9s} {item.name}: {item.summary}")
        for line in item.details.splitlines():
            print(f"          {line}")
    print(findings.verdict)
