"""Source `skip_sets`: `runtime/sources/skip_sets.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    table="source",
    name="skip_sets",
    parameters=(
        ("layers", int),
        ("attention", 0),
        ("mlp", 0),
        ("window", 50),
        ("every", 25),
        ("threshold", 0.95),
        ("trials", 1000),
        ("patience", 300),
        ("seed", 0),
    ),
    ranges=(
        ("layers", Range(3, 10_000)),
        ("attention", Range(0, 9_998)),
        ("mlp", Range(0, 9_998)),
        ("window", Range(1, 1_000_000)),
        ("every", Range(2, 1_000_000)),
        ("threshold", Range(0.0, 1.0)),
        ("trials", Range(1, 100_000)),
        ("patience", Range(1, 100_000)),
        ("seed", Range(0, (1 << 31) - 1)),
    ),
    gives="blocks",
    source="Xia et al. 2024, arXiv 2410.06916",
)
