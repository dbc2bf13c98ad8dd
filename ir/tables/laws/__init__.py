"""The laws by which `mix` combines rows of several models: a file each, found by its place.

A file holds `ENTRY`, what the law declares; what computes it is the file of the same name in
`specplan.runtime.laws`.
"""

from __future__ import annotations

from specplan.ir.tables.declaration import entries_of

LAW_ENTRIES = entries_of("law", __name__, __path__)
"""By name."""
