"""The acceptance rules that plans may name: a file each, found by its place.

A file holds `ENTRY`, what the rule declares; what computes it is the file of the same name in
`specplan.runtime.acceptance`.
"""

from __future__ import annotations

from specplan.ir.tables.declaration import Declaration, entries_of

RULE_ENTRIES = tuple(
    sorted(entries_of("rule", __name__, __path__), key=lambda entry: entry.lossless == "never")
)
"""Those that keep the target's law first, each half by name."""
LOSSLESS = tuple(entry for entry in RULE_ENTRIES if entry.lossless != "never")
"""Those that keep the target's law."""
LOSSY = tuple(entry for entry in RULE_ENTRIES if entry.lossless == "never")
"""Those that change it."""


def list_rules() -> tuple[Declaration, ...]:
    """Every acceptance rule that a plan may name, the lossless ones first."""
    return RULE_ENTRIES
