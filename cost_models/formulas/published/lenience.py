"""Lenience: accepting more than the target's own distribution allows."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import count, number, sequence

_TARGET = sequence("target_law", "p", "target's probability of each token")
_DRAFT = sequence("draft_law", "q", "draft model's probability of each token")
_SIZE = count("vocabulary", "V", "tokens of the vocabulary", "tokens", low=1, high=1e6)
_LENIENCE = number("lenience", "l", "1 keeps the target's distribution", low=1e-6, high=1.0)
_i = sympy.Symbol("i", integer=True)

LAW = FormulaSet(
    name="lenience",
    title="acceptance of a token by the (lenient) token rule",
    source="Leviathan, Kalman and Matias 2022, arXiv 2211.17192: section 3 and the appendix",
    variables=(_TARGET, _DRAFT, _SIZE, _LENIENCE),
    formulas=(
        Formula(
            "acceptance",
            r"\beta",
            "probability that a token drawn from q is accepted",
            sympy.Sum(
                sympy.Min(_TARGET.symbol[_i] / _LENIENCE.symbol, _DRAFT.symbol[_i]),
                (_i, 1, _SIZE.symbol),
            ),
        ),
    ),
    validity=(
        "At l = 1 it is one minus the total variation distance, and output keeps the target's "
        "distribution; below 1 it does not.",
    ),
)
