"""Rule `greedy`: `runtime/acceptance/greedy.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    table="rule",
    name="greedy",
    summary="accepts the target's most probable token",
    lossless="greedy",
    source="Leviathan et al. 2022, arXiv 2211.17192",
)
