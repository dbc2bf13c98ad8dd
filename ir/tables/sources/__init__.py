"""The sources that plans may declare beside the text: a file each, found by its place.

A file holds `ENTRY`, what the source declares; what computes it is the file of the same name in
`specplan.runtime.sources`.
"""

from __future__ import annotations

from specplan.ir.tables.declaration import entries_of

SOURCE_ENTRIES = entries_of("source", __name__, __path__)
"""By name."""
