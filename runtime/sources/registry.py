"""Sources by the names that plans give them, each found by its place."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import SourceState
from specplan.ir.tables.declaration import Declaration
from specplan.ir.tables.sources import SOURCE_ENTRIES
from specplan.runtime.sources.source import Source

_FOLDER = __name__.rpartition(".")[0]
SOURCES: Mapping[str, type[Source]] = {
    entry.name: import_module(f"{_FOLDER}.{entry.name}").SOURCE for entry in SOURCE_ENTRIES
}
"""What computes each declared source: the file of its name."""


def new_source(state: SourceState, vocabulary: int) -> Source:
    """A source as a plan declares it, taught nothing yet.

    Args:
        state: its declaration.
        vocabulary: tokens of the target.

    Raises:
        MissingCapabilityError: nothing here computes such a source.
        UsageError: what it is read from is not there.
    """
    name = state.kind.name
    declared = next((entry for entry in SOURCE_ENTRIES if entry.name == name), None)
    if declared is None:
        raise MissingCapabilityError(
            f"no source {name} can be made here",
            where=f"state @{state.name}",
            remedy=f"There are {', '.join(SOURCES)}.",
        )
    return SOURCES[name].declared(state, _sizes(declared, state), vocabulary)


def row_width(state: SourceState) -> int:
    """Likeliest tokens that a source, as a plan declares it, learns of a row of logits."""
    declared = next(entry for entry in SOURCE_ENTRIES if entry.name == state.kind.name)
    return SOURCES[state.kind.name].row_width(_sizes(declared, state))


def _sizes(declared: Declaration, state: SourceState) -> dict[str, int]:
    return {
        key: state.kind.integer(key, default)
        for key, default in declared.parameters
        if isinstance(default, int)
    }
