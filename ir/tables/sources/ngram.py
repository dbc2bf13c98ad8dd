"""Source `ngram`: `runtime/sources/ngram.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    parameters=(("order", 3), ("capacity", 65536)),
    ranges=(
        ("order", Range(1, 1024)),
        ("capacity", Range(1, 1_000_000_000)),
    ),
    learns=("text",),
    finds="apart",
    source="Ou et al. 2024, arXiv 2404.08698",
)
