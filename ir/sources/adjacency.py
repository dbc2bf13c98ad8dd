"""Source `adjacency`: `runtime/sources/adjacency.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration

ENTRY = Declaration(
    table="source",
    name="adjacency",
    parameters=(("width", 8),),
    source="Luo et al. 2024, arXiv 2408.08696",
)
