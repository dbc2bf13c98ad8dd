"""Source `ngram`: `runtime/sources/ngram.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration

ENTRY = Declaration(
    table="source",
    name="ngram",
    parameters=(("order", 3), ("capacity", 65536)),
    source="Ou et al. 2024, arXiv 2404.08698",
)
