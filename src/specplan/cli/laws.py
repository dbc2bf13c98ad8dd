"""`specplan laws`: lists published formulas, and prints those of one source."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json, print_table


def laws(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Print the formulas of this source.", show_default=False
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/laws.md.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List published formulas, or print those of one source with its known mistakes."""
    from specplan.cost_models.formulas.formula import list_formulas

    if markdown:
        from specplan.pages.formulas import formulas_page

        print(formulas_page(list_formulas()), end="")
    elif name is not None:
        print_formulas(name, json=json)
    elif json:
        from specplan.pages.formulas import formulas_as_dict

        print_json({"laws": [formulas_as_dict(each) for each in list_formulas()]})
    else:
        rows = [(each.name, each.title, _paper(each.source)) for each in list_formulas()]
        print_table(("formulas", "what it is about", "source"), rows)


def print_formulas(name: str, *, json: bool) -> None:
    """Print the formulas of one source."""
    from specplan.cost_models.formulas.formula import load_formulas
    from specplan.pages.formulas import formulas_as_dict, formulas_text

    formulas = load_formulas(name)
    if json:
        document: dict[str, Any] = formulas_as_dict(formulas)
        print_json(document)
    else:
        print(formulas_text(formulas))


def _paper(source: str) -> str:
    """A source without its remarks."""
    return source.partition(";")[0].partition(":")[0]
