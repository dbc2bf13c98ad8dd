"""What the oracle runs: every verified plan."""

from __future__ import annotations

from specplan.ir.capabilities import Capabilities
from specplan.ir.ops import OPS
from specplan.ir.tables.sources import SOURCE_ENTRIES

CAPABILITIES = Capabilities(
    backend="oracle",
    ops=frozenset(OPS),
    states=frozenset({"cache", "track", "source", "value"}),
    sources=frozenset(entry.name for entry in SOURCE_ENTRIES),
    policies=frozenset({"sink_recent", "retrieved"}),
    limits={},
    any_layer=True,
    stops=True,
)
