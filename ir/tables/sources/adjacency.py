"""Source `adjacency`: `runtime/sources/adjacency.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    parameters=(("width", 8),),
    ranges=(("width", Range(1, 1024)),),
    learns=("logits",),
    finds="apart",
    source="Luo et al. 2024, arXiv 2408.08696",
)
