"""Rule `token`: `runtime/acceptance/token.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="rejects token by token (speculative sampling)",
    chain_only=True,
    reads_probs=True,
    uniforms_per_node=1,
    source="Leviathan et al. 2022, arXiv 2211.17192",
)
