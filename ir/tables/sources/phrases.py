"""Source `phrases`: `runtime/sources/phrases.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    parameters=(("order", 3), ("width", 8), ("capacity", 65536)),
    ranges=(
        ("order", Range(1, 1024)),
        ("width", Range(1, 1024)),
        ("capacity", Range(1, 1_000_000_000)),
    ),
    learns=("text", "runs"),
    source="Fu et al. 2024, arXiv 2402.02057",
)
