"""`specplan explain`: why a plan was chosen."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer

from specplan.cli.laws import print_formulas
from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.cli.planned import ProblemOption
from specplan.cli.screen.show import ShowOption, check_show, print_screen
from specplan.ir.errors import UndecidedError, UsageError


@takes_problem(
    "DIR|PROBLEM|PLAN.txt",
    "A bundle that `specplan optimize` wrote, a problem file, or a plan text with its --problem.",
)
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
    problem: ProblemOption = None,
    show: ShowOption = None,
    json: JsonOption = False,
) -> None:
    """Say why a plan was chosen, what it was chosen from, and when it stops paying."""
    _check(source, law, graph=mermaid or dot, answers=mermaid + dot + json)
    if law is not None:
        print_formulas(law, json=json)
        return
    from specplan.bundles.report import reading_report
    from specplan.cli.planned import planned
    from specplan.cli.screen.decided import Context

    check_show(show, json=json)
    plan, report = planned(source, problem)
    words = f"{source} --problem {problem}" if problem is not None else str(source)
    step = f"specplan explain {words} --show all   (or plan)"
    with reading_report(source.path):
        explanation = report["explanation"]
        undecided = bool(explanation.get("what_if"))
        if (mermaid or dot) and not undecided:
            from specplan.ir.text.picture import to_dot, to_mermaid

            print(to_mermaid(plan) if mermaid else to_dot(plan), end="")
        elif json:
            print_json(report if candidates and not undecided else explanation)
        else:
            print_screen(explanation, Context(words, (step,), date.today()), plan, show)
    if undecided:
        raise typer.Exit(UndecidedError.exit_code)


def _check(source: ProblemSource, law: str | None, *, graph: bool, answers: int) -> None:
    """Refuse nothing to explain, and several answers at once.

    Raises:
        UsageError: says what to leave out.
    """
    if law is not None:
        if graph:
            raise UsageError(
                "a published formula has no graph",
                where=f"--law {law}",
                remedy="Leave --mermaid and --dot out.",
            )
        return
    if source.empty:
        raise UsageError(
            "there is nothing to explain",
            where="specplan explain",
            remedy="Give the folder of a bundle, a problem file, or --law NAME.",
        )
    if answers > 1:
        raise UsageError(
            "--mermaid, --dot and --json cannot be combined",
            where="specplan explain",
            remedy="Give one of them.",
        )
