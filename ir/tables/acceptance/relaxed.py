"""Rule `relaxed`: `runtime/acceptance/relaxed.py` computes it."""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import Range

ENTRY = Declaration(
    summary="accepts tokens among the target's top choices with at most delta less probability",
    parameters=(("top", 10), ("delta", 0.6)),
    ranges=(("top", Range(1, 1 << 31)), ("delta", Range(0.0, 1.0))),
    lossless="never",
    loss=(0.3, 0.3),
    source="NVIDIA 2025, TensorRT-LLM technical blog 2, DeepSeek R1 MTP",
)
