"""Rule `gumbel`: `runtime/acceptance/gumbel.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="draws target and draft tokens with the same randomness",
    uniforms_per_node=1,
    draws_by_place=True,
    shares_uniforms=True,
    source="Daliri et al. 2024, arXiv 2408.07978",
)
