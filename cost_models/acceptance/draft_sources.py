"""Sources that draft: what they are called, how plans declare them, how acceptance is measured.

What a method writes into its plan and what is measured are read from the same entry, so that a
profile is of the very source that runs. The text itself is looked up without a declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from specplan.ir.plan import SourceState
from specplan.ir.values import Atom, Entry, State, Text, print_atom

Evidence = Literal["lengths", "ranks", "pools"]


@dataclass(frozen=True)
class DraftSource:
    """One source as it drafts.

    Attributes:
        word: its name in a problem's `sources`, and as a drafter.
        kind: what it is declared as.
        scope: whose texts it learns: one request's, those of all, or none.
        match: shortest and longest suffix looked for, tokens.
        last: longest run that it is taught, tokens; 0 where it learns rows, or nothing.
        evidence: what its acceptance profile holds.
        longest: tokens of a continuation that are measured.
        occurrences: continuations that are merged into one tree; None for as many as its nodes.
    """

    word: str
    kind: Entry
    scope: Literal["request", "process", "read_only"]
    match: tuple[int, int]
    last: int
    evidence: Evidence
    longest: int
    occurrences: int | None = None

    def state(self, name: str, path: Path | None = None) -> SourceState:
        """Its declaration as a state."""
        at = None if path is None else Text(str(path))
        return SourceState(name=State(name), kind=self.kind, scope=self.scope, path=at)

    def declaration(self, name: str, path: Path | None = None) -> str:
        """The same as plan text, `@name = source ...`."""
        where = "" if path is None else f" path={print_atom(Text(str(path)))}"
        return f"@{name} = source {print_atom(self.kind)} scope={self.scope}{where}"

    @property
    def shares(self) -> bool:
        """Whether what one request drafts depends on others."""
        return self.scope == "process"

    def integer(self, key: str) -> int:
        """A parameter of its declaration."""
        return self.kind.integer(key, 0)


def _entry(name: str, **arguments: Atom) -> Entry:
    return Entry(name, tuple(arguments.items()))


_EVERY = (
    DraftSource(
        "adjacency", _entry("adjacency", width=8), "process", (1, 1), 0, "ranks", longest=1
    ),
    DraftSource(
        "automaton",
        _entry("automaton", capacity=65536),
        "request",
        match=(1, 32),
        last=1,
        evidence="lengths",
        longest=32,
    ),
    DraftSource(
        "datastore",
        _entry("datastore", order=16),
        "read_only",
        match=(1, 16),
        last=0,
        evidence="pools",
        longest=8,
        occurrences=16,
    ),
    DraftSource(
        "ngram",
        _entry("ngram", order=5, capacity=65536),
        "request",
        match=(1, 4),
        last=5,
        evidence="lengths",
        longest=16,
    ),
    DraftSource(
        "suffix",
        _entry("log", capacity=1_000_000),
        "process",
        match=(1, 24),
        last=1,
        evidence="lengths",
        longest=32,
    ),
    DraftSource(
        "trie",
        _entry("trie", capacity=262_144),
        "process",
        match=(1, 4),
        last=12,
        evidence="pools",
        longest=8,
    ),
)
DRAFT_SOURCES: Mapping[str, DraftSource] = MappingProxyType({one.word: one for one in _EVERY})
"""By their words."""
