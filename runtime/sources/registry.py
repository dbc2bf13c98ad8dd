"""Sources by the names that plans give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import SourceState
from specplan.ir.tables import BUILTIN
from specplan.runtime.sources.adjacency import Adjacency
from specplan.runtime.sources.automaton import Automaton
from specplan.runtime.sources.datastore import Datastore
from specplan.runtime.sources.log import Log
from specplan.runtime.sources.ngram_table import NgramTable
from specplan.runtime.sources.phrases import Phrases
from specplan.runtime.sources.source import Source
from specplan.runtime.sources.trie import Trie

_Maker = Callable[[SourceState, Mapping[str, int], int], Source]
_MAKERS: dict[str, _Maker] = {
    "adjacency": lambda state, sizes, vocabulary: Adjacency(vocabulary, sizes["width"]),
    "automaton": lambda state, sizes, vocabulary: Automaton(sizes["capacity"]),
    "datastore": lambda state, sizes, vocabulary: _datastore(state, sizes["order"], vocabulary),
    "log": lambda state, sizes, vocabulary: Log(sizes["capacity"]),
    "ngram": lambda state, sizes, vocabulary: NgramTable(sizes["order"], sizes["capacity"]),
    "phrases": lambda state, sizes, vocabulary: Phrases(
        sizes["order"], sizes["width"], sizes["capacity"]
    ),
    "trie": lambda state, sizes, vocabulary: Trie(sizes["capacity"]),
}
RUNNABLE = frozenset(_MAKERS)
"""Sources that can be made here."""
ONE_CONTINUATION = frozenset({"automaton"})
"""Of them, those that give one continuation of a text only."""
MERGING = frozenset({"datastore", "log", "phrases", "trie"})
"""Those that merge continuations into one tree."""
ONE_TEXT = frozenset({"automaton"})
"""Those that hold one text each."""
LEARNS: Mapping[str, tuple[str, ...]] = {
    "adjacency": ("rows",), "automaton": ("text",), "log": ("text",), "ngram": ("text",),
    "phrases": ("text", "runs"), "trie": ("text",),
}  # fmt: skip
"""What they are taught: rows of logits, the text, or runs of drafted tokens."""


def new_source(state: SourceState, vocabulary: int) -> Source:
    """A source as a plan declares it, taught nothing yet.

    Args:
        state: its declaration.
        vocabulary: tokens of the target.

    Raises:
        MissingCapabilityError: nothing here computes such a source.
    """
    name = state.kind.name
    if name not in _MAKERS:
        raise MissingCapabilityError(
            f"no source {name} can be made here",
            where=f"state @{state.name}",
            remedy=f"There are {', '.join(sorted(RUNNABLE))}.",
        )
    declared = BUILTIN.find("source", name)
    defaults = dict(declared.parameters) if declared is not None else {}
    sizes = {
        key: state.kind.integer(key, default)
        for key, default in defaults.items()
        if isinstance(default, int)
    }
    return _MAKERS[name](state, sizes, vocabulary)


def _datastore(state: SourceState, order: int, vocabulary: int) -> Datastore:
    if state.path is None:
        raise UsageError(
            "a datastore is read from a folder",
            where=f"state @{state.name}",
            remedy="Declare it with path= and scope=read_only.",
        )
    return Datastore(Path(state.path), vocabulary, order)
