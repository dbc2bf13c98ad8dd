"""Rule `contrastive`: `runtime/acceptance/contrastive.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    table="rule",
    name="contrastive",
    summary="judges by what the target knows better than the draft",
    parameters=(("beta", 0.5), ("alpha", 0.1)),
    ranges=(("beta", Range(0.0, 1e3)), ("alpha", Range(0.0, 1.0))),
    lossless="never",
    chain_only=True,
    reads_laws=True,
    uniforms_per_node=1,
    loss=(0.108028, 0.162396),
    source="Yuan et al. 2023, arXiv 2311.08981",
)
