"""`specplan optimize`: a problem file in, the fastest plan and why, and a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specplan.cli.options import JsonOption, ProblemArgument
from specplan.cli.output import print_json

if TYPE_CHECKING:
    from specplan.ir.plan import Plan


def optimize(
    problem: ProblemArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write a bundle to this folder."),
    ] = None,
    json: JsonOption = False,
    print_ir_after_all: Annotated[
        bool,
        typer.Option("--print-ir-after-all", help="Show the plan after each pass that changes it."),
    ] = False,
) -> None:
    """Find the fastest decoding plan of a problem."""
    from specplan import api
    from specplan.ir.printer import print_plan
    from specplan.progress import terminal_progress

    with terminal_progress() as progress:
        result = api.optimize(problem, out=out, progress=progress)
    if json:
        print_json(result.as_dict())
        return
    print(print_plan(result.plan))
    if print_ir_after_all:
        from specplan.passes.pipeline import run_passes
        from specplan.planner.explain_memory import arenas

        run_passes(result.plan, watch=_show)
        for arena in arenas(result.search.facts, result.search.chosen):
            print("".join(f"# {line}\n" for line in arena.table()))
    print(result.summary())
    print(f"Where the time goes, and where it stops paying: specplan explain {out or problem}")
    if result.bundle is not None:
        print(f"\nBundle: {out}")


def _show(name: str, plan: Plan, changed: bool, seconds: float) -> None:
    """What a pass made of the plan."""
    from specplan.ir.printer import print_plan

    print(f"# after {name}, {seconds * 1e3:.1f} ms" + ("" if changed else ": as before"))
    if changed:
        print(print_plan(plan))
