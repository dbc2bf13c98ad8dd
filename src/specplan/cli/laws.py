"""`specplan laws`: the published formulas that are known, and one of them in full."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json, print_table


def laws(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print this law.", show_default=False)
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all laws as the page docs/laws.md.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the laws of speculative decoding, or print one: formulas, source, known mistakes."""
    from specplan.cost_models.formulas.formula import list_laws

    if markdown:
        from specplan.pages.formulas import laws_page

        print(laws_page(list_laws()), end="")
    elif name is not None:
        print_law(name, json=json)
    elif json:
        from specplan.pages.formulas import law_as_dict

        print_json({"laws": [law_as_dict(law) for law in list_laws()]})
    else:
        rows = [(law.name, law.title, _paper(law.source)) for law in list_laws()]
        print_table(("law", "what it is about", "source"), rows)


def print_law(name: str, *, json: bool) -> None:
    """Print one law in full."""
    from specplan.cost_models.formulas.formula import load_law
    from specplan.pages.formulas import law_as_dict, law_text

    law = load_law(name)
    if json:
        document: dict[str, Any] = law_as_dict(law)
        print_json(document)
    else:
        print(law_text(law))


def _paper(source: str) -> str:
    """A source without its remarks."""
    return source.partition(";")[0].partition(":")[0]
