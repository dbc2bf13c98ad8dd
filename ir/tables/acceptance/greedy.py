"""Rule `greedy`: `runtime/acceptance/greedy.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="accepts the target's most probable token",
    lossless="greedy",
    source="Leviathan et al. 2022, arXiv 2211.17192",
)
