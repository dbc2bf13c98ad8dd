"""Law `linear`: `runtime/laws/linear.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration

ENTRY = Declaration(
    summary="sum of the logits, each model's times its weight",
    parameters=(("weights", ()),),
    source="Liu et al. 2024, proxy tuning, arXiv 2401.08565",
)
