"""`specplan engines`: what plans can be projected onto."""

from __future__ import annotations

from typing import Annotated

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import named, print_json, print_record, print_table


def engines(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME[@VERSION]", help="Show this engine in full.", show_default=False
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/engines.md.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the engines and versions, or show which plans one can express."""
    from specplan.backends.engines.registry import all_tables, open_table
    from specplan.backends.engines.words import engine_as_dict, engine_rows, engines_page
    from specplan.ir.capabilities import backend_name

    tables = all_tables()
    if markdown:
        print(engines_page(tables), end="")
        return
    if name is not None and "@" in name:
        tables = (open_table(name),)
    records = [engine_as_dict(table) for table in tables]
    if name is not None and "@" not in name:
        records = named(backend_name(name), records, "engine")
    if json:
        print_json({"engines": records})
    elif name is not None:
        for record in records:
            print_record(record)
    else:
        print_table(("engine", "version", "level", "drafts with"), engine_rows(tables))
