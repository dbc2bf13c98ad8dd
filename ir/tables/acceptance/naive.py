"""Rule `naive`: `runtime/acceptance/naive.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="draws from the target and accepts drafted tokens that match",
    uniforms_per_node=1,
    draws_by_place=True,
    source="Yang et al. 2024, MCSD, arXiv 2401.06706",
)
