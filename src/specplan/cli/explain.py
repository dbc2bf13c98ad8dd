"""`specplan explain`: why a bundle's plan was chosen."""

from __future__ import annotations

from typing import Annotated

import typer

from specplan.cli.options import BundleArgument, JsonOption
from specplan.cli.output import print_json


def explain(
    bundle: BundleArgument,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="With --json: every candidate, not only the best.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Say why a bundle's plan was chosen, and what it was chosen from."""
    from specplan import api
    from specplan.backends.bundle import load_bundle
    from specplan.ir.printer import print_plan

    opened = load_bundle(bundle)
    if json:
        print_json(opened.report if candidates else opened.report["explanation"])
        return
    print(print_plan(opened.plan))
    print(api.explain(opened))
