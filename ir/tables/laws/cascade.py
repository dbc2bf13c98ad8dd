"""Law `cascade`: `runtime/laws/cascade.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="the second model's probabilities where it is as confident as the first",
    parameters=(("alpha", 0.1),),
    ranges=(("alpha", Range(0.0, 1e3)),),
    source="Narasimhan et al. 2024, arXiv 2405.19261",
)
