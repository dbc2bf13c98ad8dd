"""Fu et al. 2024: several guesses of n-grams, verified together."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import ACCEPTANCE, LENGTH, count, number

_GUESSES = count("guesses", "b", "candidate n-grams verified per step", high=4096)
_EVERY = number("steps_per_hit", "f", "steps of which one finds candidates", low=1.0, high=1e3)
_WINDOW = count("window", "W", "columns of the window", high=4096)
_NGRAM = count("ngram", "N", "size of the n-grams: gamma + 1", "tokens", low=2, high=64)
_VERIFY = number("verify_ratio", "t", "time of a step in target steps", low=1e-6, high=1e3)
_i = sympy.Symbol("i", integer=True)
_gamma = LENGTH.symbol
_tokens = _gamma + 1 - sympy.Sum((1 - ACCEPTANCE.symbol**_i) ** _GUESSES.symbol, (_i, 1, _gamma))
_compression = (_EVERY.symbol - 1 + _tokens) / _EVERY.symbol

LAW = FormulaSet(
    name="lookahead",
    title="n-grams of the model's own, several at a time",
    source="Fu et al. 2024, Lookahead Decoding, arXiv 2402.02057",
    variables=(ACCEPTANCE, LENGTH, _GUESSES, _EVERY, _WINDOW, _NGRAM, _VERIFY),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            _compression / _VERIFY.symbol,
        ),
        Formula(
            "compression", r"S_{step}", "tokens per step over all steps", _compression, "tokens"
        ),
        Formula("tokens", "E", "tokens of a step that has candidates", _tokens, "tokens"),
        Formula(
            "step_width",
            "n",
            "query tokens of a step",
            (_WINDOW.symbol + _GUESSES.symbol) * (_NGRAM.symbol - 1),
            "tokens",
        ),
    ),
    validity=(
        "Each of the candidates is accepted token by token with the same probability, "
        "independently of the others.",
        "The compression grows about linearly in the logarithm of the step's width.",
    ),
)
