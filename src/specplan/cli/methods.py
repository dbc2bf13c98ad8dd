"""`specplan methods`: what the search may choose from."""

from __future__ import annotations

from typing import Annotated

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json, print_table


def methods(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all methods as the page docs/methods.md.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the drafting methods, and what of each is priced, emitted and runnable."""
    from specplan import api
    from specplan.planner.method_words import (
        drafts_from,
        method_as_dict,
        methods_page,
        output_words,
    )

    found = api.list_methods()
    if markdown:
        print(methods_page(found), end="")
    elif json:
        print_json({"methods": [method_as_dict(method) for method in found]})
    else:
        print_table(
            ("method", "drafts from", "output", "status", "what it does"),
            [
                (
                    method.name,
                    drafts_from(method),
                    output_words(method),
                    ", ".join(method.status),
                    method.summary,
                )
                for method in found
            ],
        )
