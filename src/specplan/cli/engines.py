"""`specplan engines`: what plans can be projected onto."""

from __future__ import annotations

from typing import Annotated

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json, print_table


def engines(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all engines as the page docs/engines.md.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the engines, the versions known, what each can express, and how that was verified."""
    from specplan.backends.engines.registry import all_tables
    from specplan.backends.engines.words import engine_as_dict, engine_rows, engines_page

    tables = all_tables()
    if markdown:
        print(engines_page(tables), end="")
    elif json:
        print_json({"engines": [engine_as_dict(table) for table in tables]})
    else:
        print_table(("engine", "version", "level", "drafts with"), engine_rows(tables))
