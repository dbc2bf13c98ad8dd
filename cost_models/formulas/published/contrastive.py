"""Yuan et al. 2023: the draft model as the amateur of contrastive decoding."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import (
    ACCEPTANCE,
    DRAFT_COST,
    LENGTH,
    chain_tokens,
)

_alpha, _gamma, _c = ACCEPTANCE.symbol, LENGTH.symbol, DRAFT_COST.symbol

LAW = FormulaSet(
    name="contrastive",
    title="speculative contrastive decoding",
    source="Yuan et al. 2023, Speculative Contrastive Decoding, arXiv 2311.08981",
    variables=(ACCEPTANCE, LENGTH, DRAFT_COST),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            chain_tokens(_alpha, _gamma) / (1 + _c * _gamma + _c * _alpha**_gamma),
        ),
    ),
    validity=(
        "Acceptance is towards the contrastive law, not the target's own.",
        "The draft model looks at one token more only when all drafted ones were accepted.",
    ),
)
