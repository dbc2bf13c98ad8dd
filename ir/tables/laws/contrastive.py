"""Law `contrastive`: `runtime/laws/contrastive.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="the first model's probabilities, contrasted with the second's: p^(1+beta) / q^beta",
    parameters=(("beta", 0.5), ("alpha", 0.1)),
    ranges=(("beta", Range(0.0, 1e3)), ("alpha", Range(0.0, 1.0))),
    source="Yuan et al. 2023, arXiv 2311.08981",
)
