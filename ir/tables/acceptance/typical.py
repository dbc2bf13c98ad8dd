"""Rule `typical`: `runtime/acceptance/typical.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="accepts tokens above a threshold that depends on the target's entropy",
    parameters=(("epsilon", 0.09), ("delta", 0.3)),
    ranges=(("epsilon", Range(0.0, 1.0)), ("delta", Range(0.0, 1e6))),
    lossless="never",
    loss=(0.25, 0.3),
    source="Cai et al. 2024, Medusa, arXiv 2401.10774",
)
