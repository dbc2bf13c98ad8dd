"""Liu et al. 2024: the length that a loaded batch can afford."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Expression, Formula, FormulaSet
from specplan.cost_models.formulas.published._common import (
    ACCEPTANCE,
    BATCH,
    CONTEXT,
    LENGTH,
    chain_tokens,
    number,
)


def _coefficients(who: str, mark: str) -> tuple[tuple[str, str, str, str], ...]:
    return (
        (f"{who}_context_seconds", f"a{mark}", "per token of context", "s"),
        (f"{who}_query_seconds", f"g{mark}", "per token of the batch", "s"),
        (f"{who}_step_seconds", f"d{mark}", "per step", "s"),
    )


_TARGET = tuple(
    number(name, symbol, f"time of a target step {meaning}", unit, high=10.0)
    for name, symbol, meaning, unit in _coefficients("target", "_t")
)
_DRAFT = tuple(
    number(name, symbol, f"time of a draft step {meaning}", unit, high=10.0)
    for name, symbol, meaning, unit in _coefficients("draft", "_d")
)
_i = sympy.Symbol("i", integer=True)
_b, _k, _s = BATCH.symbol, LENGTH.symbol, CONTEXT.symbol


def _step(
    coefficients: tuple[Expression, ...], queries: Expression, text: Expression
) -> Expression:
    per_context, per_query, fixed = coefficients
    return per_context * _b * text + per_query * _b * queries + fixed


_target = tuple(variable.symbol for variable in _TARGET)
_draft = tuple(variable.symbol for variable in _DRAFT)
_round = _step(_target, _k + 1, _s) + sympy.Sum(_step(_draft, 1, _s + _i), (_i, 0, _k - 1))
_goodput = _b * chain_tokens(ACCEPTANCE.symbol, _k) / _round
_plain = _b / _step(_target, 1, _s)

LAW = FormulaSet(
    name="goodput",
    title="tokens per second of a batch, and the length that makes the most of it",
    source="Liu et al. 2024, SmartSpec, arXiv 2406.14066",
    variables=(ACCEPTANCE, LENGTH, BATCH, CONTEXT, *_TARGET, *_DRAFT),
    formulas=(
        Formula("speedup", "S", "times the goodput without speculation", _goodput / _plain),
        Formula("goodput", "G", "tokens per second of the whole batch", _goodput, "tokens/s"),
        Formula("round_seconds", "T", "time of a round", _round, "s"),
    ),
    validity=(
        "A step is linear in the tokens of context and in the tokens of the batch.",
        "All requests draft the same length and accept with the same probability.",
    ),
)
