"""Schuster et al. 2022: a confidence threshold that decays."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import number

_BASE = number("base", "lambda", "confidence asked for", high=1.0)
_TEMPERATURE = number("temperature", "tau", "how fast the threshold decays", high=100.0)
_PLACE = number("position", "t", "position of the token", "tokens", high=1e6)
_MOST = number("most", "N", "longest output", "tokens", low=1.0, high=1e6)
_decay = sympy.exp(-_TEMPERATURE.symbol * _PLACE.symbol / _MOST.symbol)
_tenth = sympy.Rational(1, 10)


def _clip(value: sympy.Expr) -> sympy.Expr:
    return sympy.Min(sympy.Max(value, 0), 1)


LAW = FormulaSet(
    name="calm",
    title="early exit under a decaying threshold",
    source="Schuster et al. 2022, Confident Adaptive Language Modeling, arXiv 2207.07061",
    variables=(_BASE, _TEMPERATURE, _PLACE, _MOST),
    formulas=(
        Formula(
            "threshold",
            r"\lambda_t",
            "confidence at which a token may leave",
            _clip((1 - _tenth) * _BASE.symbol + _tenth * _decay),
        ),
        Formula(
            "repository_threshold",
            r"\lambda'_t",
            "what the repository computes",
            _clip((1 - _tenth) * _BASE.symbol + _tenth * _BASE.symbol * _decay),
        ),
    ),
    validity=("Keys and values of the layers that are left out must be made up for, and paid.",),
    mistakes=(
        Mistake(
            "repository, `models.py`",
            "the decaying part is multiplied by lambda as well, 0.82218 at half the length "
            "(lambda = 0.9, tau = 4)",
            "the paper's threshold is 0.823534 there",
        ),
    ),
)
