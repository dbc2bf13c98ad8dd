"""Law `average`: `runtime/laws/average.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="mean of the probabilities, by weights= where the op has them",
    source="Fu et al. 2025, arXiv 2502.01662",
)
