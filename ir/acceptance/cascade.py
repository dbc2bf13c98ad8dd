"""Rule `cascade`: `runtime/acceptance/cascade.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    table="rule",
    name="cascade",
    summary="lets the draft's law stand where it is as sure as the target's",
    parameters=(("alpha", 0.1),),
    ranges=(("alpha", Range(0.0, 1e3)),),
    lossless="never",
    chain_only=True,
    reads_laws=True,
    uniforms_per_node=1,
    loss=(0.0, 0.3),
    source="Narasimhan et al. 2024, arXiv 2405.19261",
)
