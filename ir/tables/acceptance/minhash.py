"""Rule `minhash`: `runtime/acceptance/minhash.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="draws target and draft tokens by one weighted MinHash",
    uniforms_per_node=1,
    draws_by_place=True,
    shares_uniforms=True,
    source="Daliri et al. 2024, arXiv 2408.07978; Ioffe 2010, ICDM",
)
