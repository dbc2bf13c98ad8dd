"""Rule `top_beta`: `runtime/acceptance/top_beta.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="accepts tokens among the target's top choices within a tolerance of the best",
    parameters=(("beta", 5), ("tolerance", 3.0)),
    ranges=(("beta", Range(1, 1 << 31)), ("tolerance", Range(0.0, 1e6))),
    lossless="never",
    loss=(0.3, 0.3),
    source="Xia et al. 2022, SpecDec, arXiv 2203.16487",
)
