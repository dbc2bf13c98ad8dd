"""`specplan explain`: why a bundle's plan was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specplan.cli.laws import print_law
from specplan.cli.options import JsonOption
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError


def explain(
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="A bundle that `specplan optimize` wrote.", show_default=False
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
    """Say why a bundle's plan was chosen, what it was chosen from, and when it stops paying."""
    if law is not None:
        print_law(law, json=json)
        return
    if bundle is None:
        raise UsageError(
            "there is nothing to explain",
            where="specplan explain",
            remedy="Give the folder of a bundle, or --law NAME.",
        )
    from specplan import api
    from specplan.backends.bundle import load_bundle
    from specplan.ir.printer import print_plan

    opened = load_bundle(bundle)
    if json:
        print_json(opened.report if candidates else opened.report["explanation"])
        return
    print(print_plan(opened.plan))
    print(api.explain(opened))
