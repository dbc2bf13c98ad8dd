"""`specplan methods`: what the search may choose from."""

from __future__ import annotations

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json, print_table


def methods(json: JsonOption = False) -> None:
    """List the drafting methods."""
    from specplan import api

    found = api.list_methods()
    if json:
        print_json(
            {
                "methods": [
                    {
                        "name": method.name,
                        "summary": method.summary,
                        "lossless": method.lossless,
                        "sources": list(method.sources),
                        "needs_draft_model": method.needs_draft_model,
                    }
                    for method in found
                ]
            }
        )
        return
    print_table(
        ("method", "drafts from", "output", "what it does"),
        [
            (
                method.name,
                ", ".join((*method.sources, *(["draft model"] * method.needs_draft_model))) or "-",
                "the target's own" if method.lossless else "changed",
                method.summary,
            )
            for method in found
        ],
    )
