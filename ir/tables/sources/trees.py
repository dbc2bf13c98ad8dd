"""Source `trees`: `runtime/sources/trees.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

FILE = "trees.npz"
"""Where they are stored, beside the corpus that they are of."""
ENTRY = Declaration(
    parameters=(("order", 3),),
    ranges=(("order", Range(1, 64)),),
    learns=(),
    source="Ho et al. 2024, arXiv 2408.04678",
)
