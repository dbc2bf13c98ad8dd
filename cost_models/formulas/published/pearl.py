"""Liu et al. 2024: drafting and verifying at the same time."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    ACCEPTANCE,
    DRAFT_COST,
    DRAFT_SECONDS,
    TARGET_SECONDS,
    chain_tokens,
    count,
)

_LENGTH = count("length", "gamma", "drafted tokens per step", "tokens", low=1, high=1024)
_alpha, _gamma, _c = ACCEPTANCE.symbol, _LENGTH.symbol, DRAFT_COST.symbol
_tokens = chain_tokens(_alpha, _gamma - 1) / (1 - _alpha**_gamma + _alpha)

LAW = FormulaSet(
    name="pearl",
    title="draft and verification side by side",
    source="Liu et al. 2024, PEARL, arXiv 2408.11850; tokens per step from the chain of its two "
    "states, which the paper does not give",
    variables=(ACCEPTANCE, _LENGTH, DRAFT_COST, DRAFT_SECONDS, TARGET_SECONDS),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            _tokens / sympy.Max(_gamma * _c, 1),
        ),
        Formula("tokens", "E", "tokens per step", _tokens, "tokens"),
        Formula(
            "step_seconds",
            "T",
            "time of a step: the longer of the two",
            sympy.Max(_gamma * DRAFT_SECONDS.symbol, TARGET_SECONDS.symbol),
            "s",
        ),
    ),
    validity=(
        "After a rejection only the first token of the window is verified while the rest is "
        "drafted; as long as all is accepted, a whole window is.",
        "Draft model and target do not slow each other: two devices, or one with room to spare.",
    ),
    mistakes=(
        Mistake(
            "the claim",
            "drafting in parallel is presented as always faster than taking turns",
            "at low acceptance it is slower: with alpha = 0.6 and c = 1/8 it reaches 1.5526, "
            "a chain verified in turns 1.5825",
        ),
    ),
)
