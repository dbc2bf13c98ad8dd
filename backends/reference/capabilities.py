"""What the reference backend runs, as data; no torch."""

from __future__ import annotations

from specplan.backends.reference.shapes import shape_refusals
from specplan.ir.acceptance import RULE_ENTRIES
from specplan.ir.capabilities import Capabilities
from specplan.ir.sources import SOURCE_ENTRIES

CAPABILITIES = Capabilities(
    backend="reference",
    ops=frozenset(
        [
            "root",
            "grow",
            "lookup",
            "update",
            "graft",
            "pick",
            "prune",
            "forward",
            "uniform",
            "accept",
            "adopt",
            "emit",
            "commit",
            "repeat",
            "segment",
            "place",
            "relabel",
            "reroot",
            "load",
            "store",
            "measure",
            "compute",
            "when",
            "refresh",
        ]
    ),
    states=frozenset({"cache", "track", "source", "value"}),
    sources=frozenset(entry.name for entry in SOURCE_ENTRIES),
    policies=frozenset({"sink_recent", "retrieved"}),
    limits={
        ("grow", "how"): ("best", "draw", "draw_distinct", "shared"),
        ("grow", "keep"): (None,),
        ("grow", "law"): ("request",),
        ("pick", "of"): ("newest", "leaves", "all", "from"),
        ("pick", "by"): ("path",),
        ("pick", "worst"): (None,),
        ("pick", "count"): (None,),
        ("forward", "shift"): (0,),
        ("forward", "gives"): (None, (), ("logits",)),
        ("forward", "attend"): ("ancestors",),
        ("forward", "only"): (None,),
        ("accept", "rule"): tuple(rule.name for rule in RULE_ENTRIES if rule.needs_rows),
        ("accept", "law"): ("request",),
        ("commit", "keep"): ("path",),
        ("commit", "alive"): (None,),
        ("commit", "layers"): ((),),
        ("repeat", "control"): (None,),
        ("when", "control"): (None, "masked"),
        ("place", "probe"): (False,),
        ("relabel", "at"): (None,),
        ("reroot", "take"): ("match",),
        ("measure", "kind"): ("count", "accepted", "top1", "margin", "entropy", "value", "uniform"),
    },
    single=frozenset({("forward", "layers")}),
    shapes=shape_refusals,
    stops=True,
)
