"""`specplan explain`: why a plan was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.laws import print_formulas
from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.ir.errors import UndecidedError, UsageError

if TYPE_CHECKING:
    from specplan.ir.plan import Plan


@takes_problem("DIR|PROBLEM", "A bundle that `specplan optimize` wrote, or a problem file.")
def explain(
    source: ProblemSource,
    law: Annotated[
        str | None,
        typer.Option("--law", metavar="NAME", help="Print a law instead (see `specplan laws`)."),
    ] = None,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="With --json: every candidate, not only the best.")
    ] = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print the plan's rounds as a Mermaid flowchart.")
    ] = False,
    dot: Annotated[
        bool, typer.Option("--dot", help="Print the plan's rounds as a Graphviz digraph.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Say why a plan was chosen, what it was chosen from, and when it stops paying."""
    if law is not None:
        if mermaid or dot:
            raise UsageError(
                "a law has no graph",
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
    from specplan.planner.explain.words import explain_words

    plan, report = planned(source)
    with reading_report(source.path):
        undecided = bool(report["explanation"].get("what_if"))
    if undecided:
        if json:
            print_json(report["explanation"])
        else:
            text = "\n".join(explain_words(report["explanation"]))
            print(text.replace("PROBLEM", str(source)))
        raise typer.Exit(UndecidedError.exit_code)
    if mermaid or dot:
        from specplan.ir.text.picture import to_dot, to_mermaid

        print(to_mermaid(plan) if mermaid else to_dot(plan), end="")
        return
    with reading_report(source.path):
        if json:
            print_json(report if candidates else report["explanation"])
        else:
            _print_words(plan, report["explanation"])


def _print_words(plan: Plan, explanation: Mapping[str, Any]) -> None:
    """The plan, what it drafts as a picture, and why it was chosen."""
    from specplan.ir.text.printer import print_plan
    from specplan.planner.explain.picture import picture_lines
    from specplan.planner.explain.words import explain_words

    print(print_plan(plan))
    print("\n".join([*picture_lines(explanation), *explain_words(explanation)]))
