"""Rule `deterministic`: `runtime/acceptance/deterministic.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="treats drafted tokens as fixed guesses, however they were drawn",
    uniforms_per_node=1,
    source="Li et al. 2024, EAGLE, arXiv 2401.15077",
)
