"""`specplan report`: a decision as a page to read, send and keep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.ir.errors import UndecidedError, UsageError


@takes_problem("DIR|PROBLEM", "A bundle that `specplan optimize` wrote, or a problem file.")
def report(
    source: ProblemSource,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="The file to write: .html, or .md for Markdown."
        ),
    ] = Path("report.html"),
    bench: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Output of `specplan bench --json`, for measured speeds."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a report on the answer: one file that needs no network.

    An undecided answer ends with exit code 6, as in `optimize`; its report says what it would take.
    """
    from specplan.bundles.report import reading_report
    from specplan.cli.planned import next_steps, planned
    from specplan.report import write_report

    plan, data = planned(source)
    measured = None if bench is None else _measured(bench)
    folder = source.path if source.path is not None and source.path.is_dir() else None
    with reading_report(source.path):
        undecided = data["explanation"]["verdict"] == "undecided"
        steps = next_steps(source, data["explanation"]["setting"]["backends"], folder)
        write_report(out, plan, data, source=str(source), steps=steps, bench=measured)
    if json:
        print_json({"report": str(out)})
    else:
        print(f"Report: {out}")
    if undecided:
        raise typer.Exit(UndecidedError.exit_code)


def _measured(path: Path) -> dict[str, Any]:
    """What a bench run printed.

    Raises:
        UsageError: the file holds something else.
    """
    from specplan.ir.files import read_json
    from specplan.report.content import MEASURED

    document = read_json(path, "bench result")
    lines = document.get("lines") if isinstance(document, dict) else None
    if not isinstance(lines, list) or not all(
        isinstance(line, dict) and line.keys() >= MEASURED for line in lines
    ):
        raise UsageError(
            "this is not the result of a bench run",
            where=str(path),
            remedy="Write it with `specplan bench DIR --json`.",
        )
    return dict(document)
