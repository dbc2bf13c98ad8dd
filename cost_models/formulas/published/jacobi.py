"""Santilli et al. 2023: fixed-point iteration on a block."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import count, number

_BLOCK = count("block", "m", "tokens of a block", "tokens", low=1, high=4096)
_ITERATIONS = number(
    "iterations", "k", "iterations until a block stands, checking included", low=1.0, high=4096.0
)
_VERIFY = number("verify_ratio", "t", "time of an iteration in target steps", low=1e-6, high=1e3)

LAW = FormulaSet(
    name="jacobi",
    title="parallel iteration on a block",
    source="Santilli et al. 2023, Accelerating Transformer Inference for Translation via Parallel "
    "Decoding, arXiv 2305.10427",
    variables=(_BLOCK, _ITERATIONS, _VERIFY),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            _BLOCK.symbol / (_ITERATIONS.symbol * _VERIFY.symbol),
        ),
        Formula("least_speedup", "S_0", "when every iteration fixes one token", 1 / _VERIFY.symbol),
    ),
    validity=("Greedy decoding; an iteration fixes at least one further token.",),
)
