"""What a round that is one graph can hold, as data; no torch."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.reference.capabilities import CAPABILITIES as REFERENCE
from specplan.backends.static.shapes import shape_refusals

_ON_THE_HOST = {
    "update", "load", "store", "place", "relabel", "reroot", "measure", "compute", "when",
    "refresh", "adopt",
}  # fmt: skip

STATIC = replace(
    REFERENCE,
    backend="static",
    ops=REFERENCE.ops - _ON_THE_HOST,
    states=frozenset({"cache", "track"}),
    sources=frozenset(),
    policies=frozenset(),
    limits={
        **REFERENCE.limits,
        ("pick", "of"): ("newest", "all"),
        ("pick", "at"): (None,),
        ("accept", "at"): (None,),
        ("lookup", "source"): ("text",),
        ("lookup", "children"): (1,),
        ("lookup", "nodes"): (None,),
    },
    single=REFERENCE.single | {("forward", "nodes")},
    shapes=shape_refusals,
    whole_rounds=True,
    stops=False,
)
"""What the interpreter runs, sources that learn and values carried from round to round left out;
loops are unrolled before tracing. A backend that compiles such graphs says so under its own
name."""
