"""What a round that is one graph can hold, as data; no torch."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.reference.capabilities import CAPABILITIES as REFERENCE
from specplan.backends.static.shapes import shape_refusals

_LEFT_OUT = {"refresh", "adopt"}

STATIC = replace(
    REFERENCE,
    backend="static",
    ops=REFERENCE.ops - _LEFT_OUT,
    policies=frozenset(),
    limits={
        **REFERENCE.limits,
        ("pick", "of"): ("newest", "leaves", "all"),
        ("pick", "at"): (None,),
        ("accept", "at"): (None,),
    },
    shapes=shape_refusals,
    whole_rounds=True,
    all_trips=True,
)
"""What the interpreter runs, judging within a round and small caches left out.
Loops are unrolled before tracing; of those that end by request every trip is traced. A backend that
compiles such graphs says so under its own name."""

UNCOMPILED = replace(STATIC, stops=False)
"""What is worth running as a graph that no compiler has seen: where a loop may end early, the
interpreter ends it, and a graph does not."""
