"""Source `phrases`: `runtime/sources/phrases.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration

ENTRY = Declaration(
    table="source",
    name="phrases",
    parameters=(("order", 3), ("width", 8), ("capacity", 65536)),
    source="Fu et al. 2024, arXiv 2402.02057",
)
