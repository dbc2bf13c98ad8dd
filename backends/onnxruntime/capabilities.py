"""What the onnxruntime backend runs, as data; no torch."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.static.graph_capabilities import STATIC

CAPABILITIES = replace(STATIC, backend="onnxruntime")
"""Every round that makes a graph."""
