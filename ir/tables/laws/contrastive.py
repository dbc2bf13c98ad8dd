"""Law `contrastive`: `runtime/laws/contrastive.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    table="law",
    name="contrastive",
    summary="what the first model knows better than the second",
    parameters=(("beta", 0.5), ("alpha", 0.1)),
    ranges=(("beta", Range(0.0, 1e3)), ("alpha", Range(0.0, 1.0))),
    source="Yuan et al. 2023, arXiv 2311.08981",
)
