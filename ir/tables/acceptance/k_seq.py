"""Rule `k_seq`: `runtime/acceptance/k_seq.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="tests independent draws in sequence with one acceptance level",
    reads_probs=True,
    children=("draw",),
    uniforms_per_node=1,
    source="Sun et al. 2023, SpecTr, arXiv 2310.15141",
)
