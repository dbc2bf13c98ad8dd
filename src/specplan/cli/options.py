"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
]
ProblemArgument = Annotated[
    Path, typer.Argument(metavar="PROBLEM.yaml", help="The problem file.", show_default=False)
]
BundleArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="A bundle that `specplan optimize` wrote.", show_default=False
    ),
]
PlanArgument = Annotated[
    Path, typer.Argument(metavar="PLAN.txt", help="A plan text.", show_default=False)
]
