"""What the reference backend runs, as data; no torch."""

from __future__ import annotations

from specplan.backends.reference.shapes import shape_refusals
from specplan.ir.capabilities import Capabilities
from specplan.runtime.sources.registry import RUNNABLE

CAPABILITIES = Capabilities(
    backend="reference",
    ops=frozenset(
        [
            "root",
            "grow",
            "lookup",
            "update",
            "pick",
            "prune",
            "forward",
            "uniform",
            "accept",
            "emit",
            "commit",
            "repeat",
            "segment",
        ]
    ),
    states=frozenset({"cache", "track", "source"}),
    sources=RUNNABLE,
    limits={
        ("grow", "how"): ("best", "draw", "draw_distinct", "shared"),
        ("grow", "keep"): (None,),
        ("grow", "law"): ("request",),
        ("pick", "of"): ("newest", "all"),
        ("pick", "at"): (None,),
        ("pick", "by"): ("path",),
        ("pick", "worst"): (None,),
        ("pick", "count"): (None,),
        ("forward", "shift"): (0,),
        ("forward", "gives"): (None, (), ("logits",)),
        ("forward", "attend"): ("ancestors",),
        ("forward", "only"): (None,),
        ("accept", "rule"): (
            "greedy",
            "token",
            "block",
            "recursive",
            "deterministic",
            "k_seq",
            "naive",
            "gumbel",
            "lenient",
            "typical",
            "top_beta",
            "rollback",
            "contrastive",
            "cascade",
        ),
        ("accept", "at"): (None,),
        ("accept", "law"): ("request",),
        ("commit", "keep"): ("path",),
        ("commit", "alive"): (None,),
        ("commit", "layers"): ((),),
        ("repeat", "control"): (None,),
    },
    single=frozenset({("forward", "nodes"), ("forward", "layers")}),
    shapes=shape_refusals,
)
