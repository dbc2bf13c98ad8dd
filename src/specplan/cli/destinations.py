"""Where the findings of `specplan check` go: terminal, files, annotations, and the exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json
from specplan.ir.errors import RegressionError, UsageError
from specplan.ir.files import write_atomic

if TYPE_CHECKING:
    from specplan.checks.findings import Findings


@dataclass(frozen=True)
class Destinations:
    """Where findings go besides the terminal; the options of `specplan check` that say so."""

    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write a Markdown summary.")
    ] = None
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")
    ] = None
    benchmark_json: Annotated[
        Path | None,
        typer.Option(
            "--benchmark-json",
            metavar="FILE",
            help="Write JSON for github-action-benchmark (customSmallerIsBetter).",
        ),
    ] = None
    bencher_json: Annotated[
        Path | None,
        typer.Option("--bencher-json", metavar="FILE", help="Write Bencher Metric Format JSON."),
    ] = None
    github: Annotated[
        bool,
        typer.Option(
            "--github", help="Annotate on stderr and append to the file in GITHUB_STEP_SUMMARY."
        ),
    ] = False
    json: JsonOption = False


def grouped(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the fields of a dataclass as options, and get them as one parameter.

    Args:
        groups: dataclass by the command's parameter; its fields are annotated for typer.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True).parameters.values()
        parameters = [one for one in own if one.name not in groups]
        options = {name: get_type_hints(kind, include_extras=True) for name, kind in groups.items()}
        for name, kind in groups.items():
            parameters += [
                Parameter(key, Parameter.KEYWORD_ONLY, default=getattr(kind, key), annotation=hint)
                for key, hint in options[name].items()
            ]

        def run(**values: Any) -> None:
            for name, kind in groups.items():
                values[name] = kind(**{key: values.pop(key) for key in options[name]})
            command(**values)

        named = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        run.__annotations__ = {one.name: one.annotation for one in named}
        run.__signature__ = Signature(named)  # type: ignore[attr-defined]
        return run

    return decorate


def deliver(findings: Findings, to: Destinations, remedy: str) -> None:
    """Write and print findings.

    Args:
        findings: of one run.
        to: files and formats.
        remedy: the way to mend a regression.

    Raises:
        RegressionError: something is worse than allowed; raised after everything is written.
    """
    from specplan.checks import outputs

    texts: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (to.markdown, lambda: outputs.markdown(findings)),
        (to.junit, lambda: outputs.junit(findings)),
        (to.benchmark_json, lambda: _json(outputs.benchmark_json(findings))),
        (to.bencher_json, lambda: _json(outputs.bencher_json(findings))),
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
    """Read `5%` or `0.05` as a fraction between 0 and 1.

    Raises:
        UsageError: it is neither.
    """
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1.0:
        raise UsageError(
            f"'{text}' is not a fraction", where="--threshold", remedy="Write 5% or 0.05."
        )
    return value


def threshold(text: str) -> float:
    """Read `median:5%`, or `5%` alone.

    Raises:
        UsageError: another statistic than the median, or not a fraction.
    """
    name, _, part = text.rpartition(":")
    if name not in ("", "median"):
        raise UsageError(
            f"'{name}' is not supported: only medians are robust to single slow runs",
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
