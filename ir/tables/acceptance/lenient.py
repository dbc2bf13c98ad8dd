"""Rule `lenient`: `runtime/acceptance/lenient.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="rejects token by token, less often than exactness requires",
    parameters=(("lenience", 0.5),),
    ranges=(("lenience", Range(1e-6, 1.0)),),
    lossless="never",
    chain_only=True,
    reads_probs=True,
    uniforms_per_node=1,
    loss=(0.2, 0.3),
    source="Leviathan et al. 2022, arXiv 2211.17192, appendix",
)
