"""`specplan explain`: why a plan was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.laws import print_law
from specplan.cli.options import JsonOption
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.ir.plan import Plan


def explain(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR|PROBLEM]",
            help="A bundle that `specplan optimize` wrote, or a problem file.",
            show_default=False,
        ),
    ] = None,
    law: Annotated[
        str | None,
        typer.Option("--law", metavar="NAME", help="Print a law instead (see `specplan laws`)."),
    ] = None,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="With --json: every candidate, not only the best.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Say why a plan was chosen, what it was chosen from, and when it stops paying."""
    if law is not None:
        print_law(law, json=json)
        return
    if path is None:
        raise UsageError(
            "there is nothing to explain",
            where="specplan explain",
            remedy="Give the folder of a bundle, a problem file, or --law NAME.",
        )
    from specplan.ir.printer import print_plan
    from specplan.planner.explain_words import explain_words

    plan, report = _planned(path) if path.is_file() else _bundled(path)
    if json:
        print_json(report if candidates else report["explanation"])
        return
    print(print_plan(plan))
    print("\n".join(explain_words(report["explanation"])))


def _bundled(folder: Path) -> tuple[Plan, dict[str, Any]]:
    """The plan of a bundle and its report."""
    from specplan.backends.bundle import load_bundle

    opened = load_bundle(folder)
    return opened.plan, opened.report


def _planned(problem: Path) -> tuple[Plan, dict[str, Any]]:
    """The plan of a problem and what a bundle would report of it."""
    from specplan import api
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        result = api.optimize(problem, progress=progress)
    return result.plan, result.search.as_dict() | {"explanation": result.explanation()}
