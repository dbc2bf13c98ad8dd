"""What the inductor backend runs, as data; no torch."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.reference.capabilities import CAPABILITIES as REFERENCE

CAPABILITIES = replace(
    REFERENCE,
    backend="inductor",
    ops=REFERENCE.ops - {"update"},
    states=frozenset({"cache", "track"}),
    sources=frozenset(),
    limits={
        **REFERENCE.limits,
        ("lookup", "source"): ("text",),
        ("lookup", "children"): (1,),
        ("lookup", "nodes"): (None,),
    },
    whole_rounds=True,
)
"""What the interpreter runs, sources that learn left out; loops are unrolled before tracing."""
