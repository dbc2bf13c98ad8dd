"""Huang et al. 2024: when to stop drafting."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import (
    DRAFT_SECONDS,
    LENGTH,
    TARGET_SECONDS,
    number,
    path_products,
    sequence,
)

_PROGRESS = number("progress_seconds", "Delta", "worth of accepted progress as time", "s")
_HAZARDS = sequence("hazards", "a", "probability that a token is accepted, given all before")
_TOKEN = number("seconds_per_token", "lambda", "least time per token", "s", low=1e-12)
_c1, _c2, _delta = DRAFT_SECONDS.symbol, TARGET_SECONDS.symbol, _PROGRESS.symbol

LAW = FormulaSet(
    name="specdec_plus_plus",
    title="optimal stopping of a chain",
    source="Huang et al. 2024, SpecDec++, arXiv 2405.19715; the second threshold by renewal reward",
    variables=(DRAFT_SECONDS, TARGET_SECONDS, _PROGRESS, _HAZARDS, LENGTH, _TOKEN),
    formulas=(
        Formula(
            "paper_threshold",
            "h",
            "stop drafting when a rejection so far is at least this probable (the paper's theorem)",
            (_c2 + _delta) / (_c1 + _c2 + _delta),
        ),
        Formula(
            "threshold",
            r"h^\ast",
            "the same for the least time per token, which is lambda",
            sympy.Max(1 - _c1 / _TOKEN.symbol, 0),
        ),
        Formula(
            "seconds_per_token",
            "t",
            "time per token when every round drafts gamma tokens",
            (LENGTH.symbol * _c1 + _c2) / (1 + path_products(_HAZARDS.symbol, LENGTH.symbol)),
            "s",
        ),
    ),
    validity=(
        "The probability that a token is accepted is known when it is drafted.",
        "Acceptance does not rise again along the chain, so that stopping once is right.",
    ),
)
