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
        ("pick", "of"): ("newest", "leaves", "all", "from"),
        ("pick", "by"): ("path",),
        ("pick", "worst"): (None,),
        ("pick", "count"): (None,),
        ("pick", "above"): (None,),
        ("forward", "shift"): (0,),
        ("forward", "levels"): (1,),
        ("forward", "most"): (None,),
        ("forward", "gives"): (None, (), ("logits",)),
        ("forward", "attend"): ("ancestors",),
        ("forward", "only"): (None,),
        ("accept", "rule"): tuple(rule.name for rule in RULE_ENTRIES if rule.needs_rows),
        ("commit", "alive"): (None,),
        ("relabel", "at"): (None,),
        ("measure", "kind"): ("count", "accepted", "top1", "margin", "entropy", "value", "uniform"),
        ("cache", "reads"): (None,),
        ("cache", "rollback"): (None,),
        ("track", "levels"): (1,),
        ("source", "scope"): ("request", "process", "read_only"),
        ("value", "kind"): ("tree", "number"),
        ("plan", "threads"): (None,),
    },
    required=frozenset({("adopt", "logits")}),
    single=frozenset({("forward", "layers")}),
    shapes=shape_refusals,
    stops=True,
)
