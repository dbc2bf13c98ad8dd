"""Rule `all`: what is drafted is emitted, and nothing computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="accepts every node without looking at logits",
    lossless="never",
    needs_logits=False,
    loss=(0.3, 0.3),
    source="Ghazvininejad et al. 2019, arXiv 1904.09324",
)
