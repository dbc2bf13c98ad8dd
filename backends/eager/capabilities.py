"""What the eager backend runs, as data; no torch."""

from __future__ import annotations

from specplan.ir.capabilities import Capabilities
from specplan.ir.ops import OPS
from specplan.ir.tables.sources import SOURCE_ENTRIES

CAPABILITIES = Capabilities(
    backend="eager",
    ops=frozenset(OPS),
    states=frozenset({"cache", "track", "source", "value"}),
    sources=frozenset(entry.name for entry in SOURCE_ENTRIES),
    policies=frozenset({"sink_recent", "retrieved", "observed"}),
    limits={
        ("cache", "reads"): (None,),
        ("cache", "rollback"): (None, "snapshot", "replay"),
        ("source", "scope"): ("request", "group", "process", "read_only"),
        ("value", "kind"): ("tree", "number", "calibrated"),
    },
    any_layer=True,
    stops=True,
)
