"""Source `automaton`: `runtime/sources/automaton.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    parameters=(("capacity", 65536),),
    ranges=(("capacity", Range(1, 1_000_000_000)),),
    learns=("text",),
    finds="one",
    one_text=True,
    source="Hu et al. 2024, arXiv 2411.10666",
)
