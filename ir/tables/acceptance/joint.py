"""Rule `joint`: `runtime/acceptance/joint.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="accepts the longest path whose joint probability is near enough to the draft's",
    parameters=(("threshold", 0.3),),
    ranges=(("threshold", Range(1e-6, 1.0)),),
    lossless="never",
    reads_probs=True,
    loss=(0.3, 0.3),
    source="Qin et al. 2024, MJSD, arXiv 2407.09722",
)
