"""`specplan optimize`: a problem file in, the fastest plan and why, and a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specplan.cli.options import JsonOption, ProblemArgument
from specplan.cli.output import print_json


def optimize(
    problem: ProblemArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write a bundle to this folder."),
    ] = None,
    json: JsonOption = False,
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
    print(result.summary())
    print(f"Where the time goes, and where it stops paying: specplan explain {out or problem}")
    if result.bundle is not None:
        print(f"\nBundle: {out}")
