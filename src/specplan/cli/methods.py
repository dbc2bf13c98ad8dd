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
    """List the drafting methods: what is priced, emitted and runnable, and by which engines."""
    from specplan import api
    from specplan.backends.engines.registry import engines_by_draft
    from specplan.planner.method_words import (
        drafts_from,
        method_as_dict,
        methods_page,
        output_words,
    )

    found, engines = api.list_methods(), engines_by_draft()
    if markdown:
        print(methods_page(found, engines), end="")
    elif json:
        print_json({"methods": [method_as_dict(method, engines) for method in found]})
    else:
        print_table(
            ("method", "drafts from", "output", "status", "engines", "what it does"),
            [
                (
                    method.name,
                    drafts_from(method),
                    output_words(method),
                    ", ".join(method.status),
                    ", ".join(engines.get((method.drafter, method.shape), ())) or "-",
                    method.summary,
                )
                for method in found
            ],
        )
