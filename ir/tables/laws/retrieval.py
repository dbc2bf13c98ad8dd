"""Law `retrieval`: `runtime/laws/retrieval.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="the first model's probabilities and those of a store, by how sure the store is",
    source="Li et al. 2024, NEST, arXiv 2405.19325",
)
