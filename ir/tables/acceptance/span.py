"""Rule `span`: `runtime/acceptance/span.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="accepts a token by how probable it is beside the best one; else the target draws",
    parameters=(("strictness", 0.5),),
    ranges=(("strictness", Range(1e-9, 1e9)),),
    lossless="never",
    chain_only=True,
    uniforms_per_node=1,
    loss=(0.148, 0.3125),
    source="Li et al. 2024, NEST, arXiv 2405.19325",
)
