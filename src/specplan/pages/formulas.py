"""Published formulas as text for a terminal, and as the page `docs/laws.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from specplan.cost_models.formulas.formula import Expression, FormulaSet, Variable

_COLUMNS = 100


def formulas_text(formulas: FormulaSet) -> str:
    """The formulas of one source for a terminal, drawn with Unicode."""
    return "\n".join(_text(formulas))


def formulas_markdown(formulas: FormulaSet) -> str:
    """The formulas of one source as a section of Markdown, in LaTeX."""
    return "\n".join(_markdown(formulas)).rstrip() + "\n"


def formulas_page(sets: Iterable[FormulaSet]) -> str:
    """The page `docs/laws.md`."""
    known = tuple(sets)
    lines = [
        "# Published formulas",
        "",
        "Formulas of speculative decoding from papers, each stated once in a file of",
        "`cost_models/formulas/published/`. This page, `specplan laws` and the break-even points",
        "are made of them. `specplan laws --markdown` writes this page; a test compares the two.",
        "",
        "| formulas | what it is about |",
        "|---|---|",
        *(f"| [`{formulas.name}`](#{formulas.name}) | {formulas.title} |" for formulas in known),
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(formulas_markdown(formulas) for formulas in known)


def formulas_as_dict(formulas: FormulaSet) -> dict[str, Any]:
    """The formulas of one source ready for JSON, as program text and in LaTeX."""
    import sympy

    return {
        "name": formulas.name,
        "title": formulas.title,
        "source": formulas.source,
        "formulas": [
            {
                "name": formula.name,
                "meaning": formula.meaning,
                "unit": formula.unit,
                "expression": sympy.sstr(formula.expression),
                "latex": f"{formula.symbol} = {sympy.latex(formula.expression)}",
            }
            for formula in formulas.formulas
        ],
        "variables": [
            {
                "name": variable.name,
                "symbol": str(variable.symbol),
                "meaning": variable.meaning,
                "unit": variable.unit,
            }
            for variable in formulas.variables
        ],
        "validity": list(formulas.validity),
        "mistakes": [asdict(mistake) for mistake in formulas.mistakes],
    }


def _text(formulas: FormulaSet) -> Iterator[str]:
    import sympy

    yield f"{formulas.name}: {formulas.title}"
    yield f"Source: {formulas.source}."
    for formula in formulas.formulas:
        yield ""
        yield f"{formula.name}{_unit(formula.unit)}: {formula.meaning}"
        drawn = sympy.pretty(_drawable(formula.expression), use_unicode=True, num_columns=_COLUMNS)
        yield from (f"    {line}".rstrip() for line in drawn.splitlines())
    yield ""
    yield "Where"
    for variable in formulas.variables:
        symbol = sympy.pretty(_symbol(variable), use_unicode=True)
        yield f"    {symbol:<5} {variable.name}{_unit(variable.unit)}: {variable.meaning}"
    for title, sentences in (
        ("Holds under", formulas.validity), ("Mistakes in the source", formulas.mistakes_in_words)
    ):  # fmt: skip
        if sentences:
            yield ""
            yield title
            yield from (f"    - {sentence}" for sentence in sentences)


def _markdown(formulas: FormulaSet) -> Iterator[str]:
    import sympy

    yield f"## {formulas.name}"
    yield ""
    yield f"{formulas.title[0].upper()}{formulas.title[1:]}. Source: {formulas.source}."
    for formula in formulas.formulas:
        yield ""
        yield f"`{formula.name}`{_unit(formula.unit)}: {formula.meaning}"
        yield ""
        yield "```math"
        yield f"{formula.symbol} = {sympy.latex(formula.expression)}"
        yield "```"
    yield ""
    yield "| symbol | variable | meaning | unit |"
    yield "|---|---|---|---|"
    for variable in formulas.variables:
        symbol = sympy.latex(_symbol(variable))
        yield f"| ${symbol}$ | `{variable.name}` | {variable.meaning} | {variable.unit} |"
    for sentence in formulas.validity:
        yield ""
        yield f"- {sentence}"
    if formulas.mistakes:
        yield ""
        yield "Mistakes in the source:"
        yield ""
        yield from (f"- {sentence}" for sentence in formulas.mistakes_in_words)
    yield ""


def _drawable(expression: Expression) -> Expression:
    """The expression with maxima and minima as functions, which are drawn; they are not."""
    import sympy

    for kind, name in ((sympy.Max, "max"), (sympy.Min, "min")):
        expression = expression.replace(kind, lambda *of, name=name: sympy.Function(name)(*of))
    return expression


def _symbol(variable: Variable) -> object:
    import sympy

    return variable.symbol[sympy.Symbol("i")] if variable.sequence else variable.symbol


def _unit(unit: str) -> str:
    return f" [{unit}]" if unit else ""
