"""Rule `block`: `runtime/acceptance/block.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="judges a chain as a whole",
    chain_only=True,
    reads_probs=True,
    uniforms_per_node=1,
    source="Sun et al. 2024, arXiv 2403.10444",
)
