"""Source `grammar`: `runtime/sources/grammar.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    parameters=(("capacity", 65536),),
    ranges=(("capacity", Range(1, 1_000_000_000)),),
    learns=("text",),
    finds="one",
    source="Beurer-Kellner et al. 2024, arXiv 2403.06988",
)
