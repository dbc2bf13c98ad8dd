"""`specplan calibrate`: what plans that change the output lose, and which of them keep a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json, print_table
from specplan.cli.planned import ProblemOption, is_plan_text


@takes_problem(
    "PROBLEM.yaml|PLAN.txt", "A problem file with limits.quality, or a plan text with --problem."
)
def calibrate(
    source: ProblemSource,
    problem: ProblemOption = None,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="With a plan text: values of its calibrated number, the safest first, such as "
            "1.0,0.9,0.8.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="With a plan text: write the calibrated plan here, its certificate beside it.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure what plans lose against the target, with a bound that needs no distribution."""
    from specplan.progress import terminal_progress

    if source.path is not None and is_plan_text(source.path):
        _calibrate_text(source, problem, grid, out, json)
        return
    from specplan.gathering import find
    from specplan.ir.errors import UsageError
    from specplan.problems import as_problem

    checked = as_problem(source.problem())
    if out is not None or grid is not None or problem is not None:
        raise UsageError(
            "--problem, --grid and --out go with a plan text",
            where="specplan calibrate",
            remedy="Leave them out; `specplan optimize --out DIR` writes a bundle.",
        )
    if checked.limits.quality is None:
        raise UsageError(
            "the problem does not say what the output may lose",
            where="limits.quality",
            remedy="Add --set limits.quality.measure=outputs_differ "
            "--set limits.quality.at_most=0.05.",
        )
    from specplan.planner.quality.front import quality_data

    with terminal_progress() as progress:
        result = find(checked, progress)
    data = quality_data(result.facts, result.candidates, result.plain, result.chosen)
    assert data is not None, "there is a limit"
    if json:
        print_json(data)
        return
    print_front(data)


def print_front(data: dict[str, Any]) -> None:
    """Every plan whose loss is known, the fastest first."""
    from specplan.planner.answer.quality import front_rows, front_title

    print_table(*front_rows(data), title=front_title(data))


def _calibrate_text(
    source: ProblemSource, problem: Path | None, grid: str | None, out: Path | None, json: bool
) -> None:
    from specplan.cli.planned import edited
    from specplan.ir.errors import UsageError
    from specplan.ir.text.printer import print_plan
    from specplan.progress import terminal_progress
    from specplan.quality.calibrating import GRID, calibrate_plan, write_calibrated

    try:
        values = GRID if grid is None else tuple(map(float, grid.split(",")))
    except ValueError:
        raise UsageError(
            f"{grid} is not a list of numbers", where="--grid", remedy="Write 1.0,0.9,0.8."
        ) from None
    written = edited(source, problem)
    assert written is not None, "it is a plan text"
    with terminal_progress() as progress:
        done = calibrate_plan(*written, values, progress)
    if out is not None:
        write_calibrated(done, out)
    if json:
        print_json(done.as_dict())
        return
    print(print_plan(done.plan))
    rows = [
        (one.words, f"{one.loss:.4g}", f"{one.p_value:.3g}", "keeps the limit" * one.keeps)
        for one in done.certificate.grid
    ]
    shown = done.certificate
    print_table(("value", ">loss", ">p", ""), rows, title=f"{shown.measure}, {shown.risk:g} risk")
    print(f"On {shown.samples} other prompts it loses {shown.mean:.4g}, at most {shown.bound:.4g}.")
