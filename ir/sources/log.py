"""Source `log`: `runtime/sources/log.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration

ENTRY = Declaration(
    table="source",
    name="log",
    parameters=(("capacity", 65536),),
    source="Liu et al. 2023, arXiv 2310.07177",
)
