"""Leviathan, Kalman and Matias 2022: a chain of equally likely tokens."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    ACCEPTANCE,
    DRAFT_COST,
    LENGTH,
    chain_tokens,
    number,
)

_OPERATIONS = number(
    "draft_operations", "chat", "operations of the draft model per token, in those of the target"
)
_alpha, _gamma, _c = ACCEPTANCE.symbol, LENGTH.symbol, DRAFT_COST.symbol
_tokens = chain_tokens(_alpha, _gamma)

LAW = FormulaSet(
    name="leviathan",
    title="a chain of drafted tokens",
    source="Leviathan, Kalman and Matias 2022, arXiv 2211.17192: equation 1, theorems 3.8 and "
    "3.11, corollary 3.9",
    variables=(ACCEPTANCE, LENGTH, DRAFT_COST, _OPERATIONS),
    formulas=(
        Formula("speedup", "S", "times the speed of plain decoding", _tokens / (_gamma * _c + 1)),
        Formula("tokens", "E", "tokens per round, the bonus included", _tokens, "tokens"),
        Formula(
            "least_speedup",
            r"S_1",
            "speedup of one drafted token, above 1 exactly where alpha > c: if any length pays, "
            "one token pays",
            (1 + _alpha) / (1 + _c),
        ),
        Formula(
            "operations_factor",
            r"\Omega",
            "arithmetic per token against plain decoding",
            (_gamma * _OPERATIONS.symbol + _gamma + 1) / _tokens,
        ),
        Formula(
            "oracle_tokens",
            r"E_\infty",
            "tokens per round if the length were always the right one",
            1 / (1 - _alpha),
            "tokens",
        ),
    ),
    validity=(
        "Every drafted token is accepted with the same probability, whatever came before.",
        "Verification of gamma + 1 tokens takes as long as a target step of one token.",
        "Against the paper's own measurements the speedup is off by 17.7 % on average and by "
        "47 % at worst.",
    ),
    mistakes=(
        Mistake(
            "appendix, lenience",
            "speedups of 2.5, 3.1, 3.6 and 5.0 are quoted",
            "theorem 3.8 allows no more than 2.33, 2.94, 3.45 and 4.79 at the stated alpha and "
            "c = 0.015",
        ),
        Mistake(
            "appendix, lenience of argmax sampling",
            "a token is said to be accepted if p(x) <= l max p",
            "it must be p(x) >= l max p",
        ),
    ),
)
