"""Source `datastore`: `runtime/sources/datastore.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    parameters=(("order", 16),),
    learns=(),
    source="He et al. 2023, arXiv 2311.08252",
)
