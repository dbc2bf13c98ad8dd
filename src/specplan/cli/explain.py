"""`specplan explain`: why a plan was chosen."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer

from specplan.cli.laws import print_formulas
from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.cli.screen.show import ShowOption, check_show, print_screen
from specplan.ir.errors import UndecidedError, UsageError


@takes_problem("DIR|PROBLEM", "A bundle that `specplan optimize` wrote, or a problem file.")
def explain(
    source: ProblemSource,
    law: Annotated[
        str | None,
        typer.Option("--law", metavar="NAME", help="Print a formula instead (`specplan laws`)."),
    ] = None,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="With --json: every candidate, not only the best.")
    ] = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print the plan's steps as a Mermaid flowchart.")
    ] = False,
    dot: Annotated[
        bool, typer.Option("--dot", help="Print the plan's steps as a Graphviz digraph.")
    ] = False,
    show: ShowOption = None,
    json: JsonOption = False,
) -> None:
    """Say why a plan was chosen, what it was chosen from, and when it stops paying."""
    if law is not None:
        if mermaid or dot:
            raise UsageError(
                "a published formula has no graph",
                where=f"--law {law}",
                remedy="Leave --mermaid and --dot out.",
            )
        print_formulas(law, json=json)
        return
    if source.empty:
        raise UsageError(
            "there is nothing to explain",
            where="specplan explain",
            remedy="Give the folder of a bundle, a problem file, or --law NAME.",
        )
    if mermaid + dot + json > 1:
        raise UsageError(
            "--mermaid, --dot and --json are three answers",
            where="specplan explain",
            remedy="Ask for one of them.",
        )
    from specplan.bundles.report import reading_report
    from specplan.cli.planned import planned
    from specplan.cli.screen.decided import Context

    check_show(show, json=json)
    plan, report = planned(source)
    step = f"specplan explain {source} --show all   (or plan)"
    with reading_report(source.path):
        explanation = report["explanation"]
        undecided = bool(explanation.get("what_if"))
        if (mermaid or dot) and not undecided:
            from specplan.ir.text.picture import to_dot, to_mermaid

            print(to_mermaid(plan) if mermaid else to_dot(plan), end="")
        elif json:
            print_json(report if candidates and not undecided else explanation)
        else:
            print_screen(explanation, Context(str(source), (step,), date.today()), plan, show)
    if undecided:
        raise typer.Exit(UndecidedError.exit_code)
