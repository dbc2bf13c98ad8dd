"""A chain whose acceptance differs from place to place."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    DRAFT_COST,
    LENGTH,
    path_products,
    sequence,
)

_HAZARDS = sequence(
    "hazards", "a", "probability that a token is accepted, given that all before it were"
)
_tokens = 1 + path_products(_HAZARDS.symbol, LENGTH.symbol)

LAW = FormulaSet(
    name="positions",
    title="a chain with an acceptance of its own at every position",
    source="product of conditional probabilities; Leviathan et al. 2022 (arXiv 2211.17192) is the "
    "case of equal ones",
    variables=(_HAZARDS, LENGTH, DRAFT_COST),
    formulas=(
        Formula("tokens", "E", "tokens per round, the bonus included", _tokens, "tokens"),
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            _tokens / (LENGTH.symbol * DRAFT_COST.symbol + 1),
        ),
    ),
    validity=("Verification takes as long as a target step of one token (speedup only).",),
    mistakes=(
        Mistake(
            "GenZ, `llm_spec_decode.py`",
            "the sum is cut off at gamma, so that perfect acceptance emits gamma tokens",
            "the target adds one of its own: gamma + 1",
        ),
    ),
)
