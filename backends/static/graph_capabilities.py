"""What a round that is one graph can hold, as data; no torch."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.eager.capabilities import CAPABILITIES as EAGER

STATIC = replace(
    EAGER,
    backend="static",
    ops=EAGER.ops - {"refresh"},
    policies=frozenset(),
    limits={
        **EAGER.limits,
        ("forward", "most"): (None,),
        ("forward", "policy"): (None,),
        ("cache", "rollback"): (None,),
        ("commit", "alive"): (None,),
        ("plan", "threads"): (None,),
    },
    sources_around=True,
    whole_rounds=True,
    all_trips=True,
)
"""What the interpreter runs, small caches, recurrent layers, and nodes that live on behind the text
left out.
Loops are unrolled before tracing; of those that end by request every trip is traced. A backend that
compiles such graphs says so under its own name."""

UNCOMPILED = replace(STATIC, stops=False)
"""What is worth running as a graph that no compiler has seen: where a loop may end early, the
interpreter ends it, and a graph does not."""
