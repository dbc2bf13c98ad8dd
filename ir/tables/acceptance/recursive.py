"""Rule `recursive`: `runtime/acceptance/recursive.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="rejection sampling over siblings: drawn with or without replacement, ranked or given",
    reads_probs=True,
    uniforms_per_node=1,
    source="Chen et al. 2024, Sequoia, arXiv 2402.12374; MCSD, arXiv 2401.06706; RSD, arXiv "
    "2402.14160",
)
