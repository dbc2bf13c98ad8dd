"""What the onnxruntime backend runs, as data; no torch."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.inductor.capabilities import CAPABILITIES as INDUCTOR

CAPABILITIES = replace(INDUCTOR, backend="onnxruntime")
"""The rounds that make a graph, as with any backend that compiles one."""
