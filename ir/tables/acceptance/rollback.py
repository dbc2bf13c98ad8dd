"""Rule `rollback`: `runtime/acceptance/rollback.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="accepts tokens that the target finds not too improbable",
    parameters=(("threshold", 5.0),),
    ranges=(("threshold", Range(0.0, 1e6)),),
    lossless="never",
    loss=(0.3, 0.3),
    source="Kim et al. 2023, BiLD, arXiv 2302.07863",
)
