"""Published formulas as expressions, with the meaning of their symbols and their source.

A formula is stated once, in a file of `published/` (`grammar.py` says how); the variables that
several files share are in `variables.yaml`. `specplan laws` prints formulas, `break_even` solves
them, and `FormulaSet.value` compiles them to NumPy functions. Pricing a plan uses none of them:
`closed_forms` has the few that it needs as plain functions, and tests hold the two equal. sympy is
loaded with the first set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np

from specplan.cost_models.formulas.grammar import Expression as Expression
from specplan.cost_models.formulas.grammar import parse_expression
from specplan.ir.errors import UsageError
from specplan.ir.files import stems

_FOLDER = resources.files("specplan.cost_models.formulas")
_PUBLISHED = _FOLDER / "published"


@dataclass(frozen=True)
class Variable:
    """What a formula depends on.

    Attributes:
        name: the keyword by which it is given.
        symbol: a sympy symbol, or an `IndexedBase` for a sequence counted from 1.
        meaning: in words.
        unit: SI, or what is counted; "" for a plain number.
        low: least value that makes sense.
        high: largest value that makes sense, and where a search for a break-even ends.
        whole: only whole numbers make sense.
        sequence: several values, one per position.
    """

    name: str
    symbol: Expression
    meaning: str
    unit: str = ""
    low: float = 0.0
    high: float = 1e9
    whole: bool = False
    sequence: bool = False


@dataclass(frozen=True)
class Formula:
    """One quantity.

    Attributes:
        name: by which it is asked for.
        symbol: how the paper writes it, in LaTeX.
        meaning: in words.
        expression: in the symbols of the set's variables.
        unit: SI, or what is counted; "" for a plain number.
    """

    name: str
    symbol: str
    meaning: str
    expression: Expression
    unit: str = ""


@dataclass(frozen=True)
class Mistake:
    """Something that a source has wrong.

    Attributes:
        where: the place in the paper or repository.
        claim: what it states.
        right: what holds instead.
    """

    where: str
    claim: str
    right: str


@dataclass(frozen=True)
class FormulaSet:
    """Formulas of one source.

    Attributes:
        name: as in `load_formulas`.
        title: in a few words.
        source: authors, year and identifier of the paper; or where else it comes from.
        variables: what the formulas depend on.
        formulas: the quantity of most use first.
        validity: what is assumed, one sentence each.
        mistakes: what the source, or code of it, has wrong.
    """

    name: str
    title: str
    source: str
    variables: tuple[Variable, ...]
    formulas: tuple[Formula, ...]
    validity: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    def formula(self, name: str) -> Formula:
        """The formula of that name.

        Raises:
            UsageError: there is none.
        """
        named = {formula.name: formula for formula in self.formulas}
        if name in named:
            return named[name]
        where = f"formulas {self.name}"
        raise UsageError(
            f"no formula {name!r}", where=where, remedy=f"There are: {', '.join(named)}."
        )

    def needs(self, formula: str) -> tuple[Variable, ...]:
        """The variables that a formula depends on, in the set's order."""
        return self.variables_of(self.formula(formula).expression)

    def variables_of(self, expression: Expression) -> tuple[Variable, ...]:
        """Those of the set's variables that an expression depends on, in the set's order."""
        free = expression.free_symbols
        return tuple(
            variable
            for variable in self.variables
            if (variable.symbol.label if variable.sequence else variable.symbol) in free
        )

    def value(self, formula: str | Expression, **known: Any) -> Any:
        """A formula's value.

        Args:
            formula: its name; or an expression in the set's symbols.
            known: every variable it needs by name: numbers or NumPy arrays that broadcast;
                sequences of numbers for the variables that are sequences. More is ignored.

        Returns:
            A float, or an array where an array was given.

        Raises:
            UsageError: a variable is missing.
        """
        expression = self.formula(formula).expression if isinstance(formula, str) else formula
        needed = self.variables_of(expression)
        missing = [variable.name for variable in needed if variable.name not in known]
        if missing:
            raise UsageError(
                f"no value is given for {', '.join(missing)}",
                where=f"formulas {self.name}",
                remedy="Give every variable of the formula by name.",
            )
        if any(variable.sequence for variable in needed):
            return float(_unrolled(expression, needed, known).evalf())
        given = [_number(known[variable.name], variable) for variable in needed]
        with np.errstate(all="ignore"):  # both sides of a case distinction are computed
            function = _compiled(expression, tuple(variable.symbol for variable in needed))
            values = np.asarray(function(*given))
        return float(values) if values.ndim == 0 else values

    @cached_property
    def mistakes_in_words(self) -> tuple[str, ...]:
        """Each mistake as one sentence."""
        return tuple(f"{m.where}: {m.claim}; {m.right}." for m in self.mistakes)


def published_names() -> tuple[str, ...]:
    """The names of all sets of formulas, in order; loads none."""
    return stems(_PUBLISHED)


def load_formulas(name: str) -> FormulaSet:
    """The formulas of one source by its name; hyphens and spaces count as underscores.

    Raises:
        UsageError: no set has this name.
    """
    known = name.strip().lower().replace("-", "_").replace(" ", "_")
    if known not in published_names():
        raise UsageError(
            f"there are no formulas of {name!r}",
            where="formulas",
            remedy=f"Known: {', '.join(published_names())}.",
        )
    return _load(known)


def list_formulas() -> tuple[FormulaSet, ...]:
    """All sets of formulas, by name."""
    return tuple(load_formulas(name) for name in published_names())


list_laws = list_formulas
"""The former name of `list_formulas`."""


@cache
def _load(name: str) -> FormulaSet:
    data = _read(_PUBLISHED / f"{name}.yaml")
    shared = _read(_FOLDER / "variables.yaml")
    variables = {key: _variable(key, own or shared[key]) for key, own in data["variables"].items()}
    texts = {key: entry["equation"].split(" = ", 1) for key, entry in data["formulas"].items()}
    stated = data.get("definitions", {}) | {key: text for key, (_, text) in texts.items()}

    @cache
    def named(word: str) -> Expression:
        return variables[word].symbol if word in variables else expression(word)

    def expression(word: str) -> Expression:
        return parse_expression(stated[word], named)

    formulas = (
        Formula(key, texts[key][0], entry["meaning"], expression(key), entry.get("unit", ""))
        for key, entry in data["formulas"].items()
    )
    return FormulaSet(
        name,
        data["title"],
        data["source"],
        tuple(variables.values()),
        tuple(formulas),
        tuple(data["validity"]),
        tuple(Mistake(**entry) for entry in data.get("mistakes", ())),
    )


def _read(file: Traversable) -> dict[str, Any]:
    from specplan.ir.text.yaml_text import read_data

    data: dict[str, Any] = read_data(file.read_text(encoding="utf-8"))
    return data


def _variable(name: str, entry: Mapping[str, Any]) -> Variable:
    import sympy

    whole = {"integer": True} if entry.get("whole") else {}
    kind = sympy.IndexedBase if entry.get("sequence") else sympy.Symbol
    symbol = kind(entry["symbol"], nonnegative=True, **whole)
    return Variable(**{"high": 1e6 if whole else 1e9, **entry, "name": name, "symbol": symbol})


def _number(value: Any, variable: Variable) -> Any:
    """Whole numbers stay whole, so that they may bound sums; all else becomes a float array."""
    if variable.whole and np.ndim(value) == 0 and float(value).is_integer():
        return np.int64(value)
    return np.asarray(value, dtype=np.float64)[()]


def _unrolled(
    expression: Expression, needed: tuple[Variable, ...], known: Mapping[str, Any]
) -> Expression:
    """The expression with numbers for all variables; sums over sequences are written out."""
    import sympy

    plain = {v.symbol: sympy.sympify(_number(known[v.name], v)) for v in needed if not v.sequence}
    flat = expression.subs(plain).doit()
    items = {
        v.symbol[place]: sympy.Float(value)
        for v in needed
        if v.sequence
        for place, value in enumerate(known[v.name], start=1)
    }
    return flat.xreplace(items)


@cache
def _compiled(expression: Expression, symbols: tuple[Any, ...]) -> Any:
    import sympy

    given = [sympy.Dummy(f"x{place}") for place in range(len(symbols))]  # gamma is a function too
    modules = "scipy" if expression.has(sympy.binomial) else "numpy"
    return sympy.lambdify(
        given, expression.xreplace(dict(zip(symbols, given, strict=True))), modules
    )
