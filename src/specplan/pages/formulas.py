"""Laws as text for a terminal, and as the page `docs/laws.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from specplan.cost_models.formulas.formula import Expression, Law, Variable

_COLUMNS = 100


def law_text(law: Law) -> str:
    """A law in full, for a terminal: formulas drawn with Unicode."""
    return "\n".join(_text(law))


def law_markdown(law: Law) -> str:
    """A law in full, as a section of Markdown: formulas in LaTeX."""
    return "\n".join(_markdown(law)).rstrip() + "\n"


def laws_page(laws: Iterable[Law]) -> str:
    """The page `docs/laws.md`."""
    known = tuple(laws)
    lines = [
        "# Laws",
        "",
        "Published formulas of speculative decoding, each stated once as an expression",
        "(`cost_models/formulas/published/`) from which this page, `specplan laws` and the",
        "break-even points are made. This page is written by `specplan laws --markdown`; a test",
        "holds it to the code.",
        "",
        "| law | what it is about |",
        "|---|---|",
        *(f"| [`{law.name}`](#{law.name}) | {law.title} |" for law in known),
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(law_markdown(law) for law in known)


def law_as_dict(law: Law) -> dict[str, Any]:
    """A law ready for JSON: formulas as program text and in LaTeX."""
    import sympy

    return {
        "name": law.name,
        "title": law.title,
        "source": law.source,
        "formulas": [
            {
                "name": formula.name,
                "meaning": formula.meaning,
                "unit": formula.unit,
                "expression": sympy.sstr(formula.expression),
                "latex": f"{formula.symbol} = {sympy.latex(formula.expression)}",
            }
            for formula in law.formulas
        ],
        "variables": [
            {
                "name": variable.name,
                "symbol": str(variable.symbol),
                "meaning": variable.meaning,
                "unit": variable.unit,
            }
            for variable in law.variables
        ],
        "validity": list(law.validity),
        "mistakes": [asdict(mistake) for mistake in law.mistakes],
    }


def _text(law: Law) -> Iterator[str]:
    import sympy

    yield f"{law.name}: {law.title}"
    yield f"Source: {law.source}."
    for formula in law.formulas:
        yield ""
        yield f"{formula.name}{_unit(formula.unit)}: {formula.meaning}"
        drawn = sympy.pretty(_drawable(formula.expression), use_unicode=True, num_columns=_COLUMNS)
        yield from (f"    {line}".rstrip() for line in drawn.splitlines())
    yield ""
    yield "Where"
    for variable in law.variables:
        symbol = sympy.pretty(_symbol(variable), use_unicode=True)
        yield f"    {symbol:<5} {variable.name}{_unit(variable.unit)}: {variable.meaning}"
    for title, sentences in (
        ("Holds under", law.validity), ("Mistakes in the source", law.mistakes_in_words)
    ):  # fmt: skip
        if sentences:
            yield ""
            yield title
            yield from (f"    - {sentence}" for sentence in sentences)


def _markdown(law: Law) -> Iterator[str]:
    import sympy

    yield f"## {law.name}"
    yield ""
    yield f"{law.title[0].upper()}{law.title[1:]}. Source: {law.source}."
    for formula in law.formulas:
        yield ""
        yield f"`{formula.name}`{_unit(formula.unit)}: {formula.meaning}"
        yield ""
        yield "```math"
        yield f"{formula.symbol} = {sympy.latex(formula.expression)}"
        yield "```"
    yield ""
    yield "| symbol | variable | meaning | unit |"
    yield "|---|---|---|---|"
    for variable in law.variables:
        symbol = sympy.latex(_symbol(variable))
        yield f"| ${symbol}$ | `{variable.name}` | {variable.meaning} | {variable.unit} |"
    for sentence in law.validity:
        yield ""
        yield f"- {sentence}"
    if law.mistakes:
        yield ""
        yield "Mistakes in the source:"
        yield ""
        yield from (f"- {sentence}" for sentence in law.mistakes_in_words)
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
