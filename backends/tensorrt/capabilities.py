"""What the tensorrt backend runs, as data; no torch."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.static.graph_capabilities import STATIC

CAPABILITIES = replace(STATIC, backend="tensorrt")
"""Every round that makes a graph: what TensorRT does not convert stays in torch."""
