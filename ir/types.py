"""Static types of values: the largest size of everything, known before anything runs.

Node indices count drafted nodes from 0, parents before children; -1 is the root.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from specplan.ir.values import Entry

ROOT = -1


@dataclass(frozen=True, slots=True)
class TreeType:
    """A tree of at most `nodes` drafted nodes and `depth` levels below the root.

    `parents` is the static shape, None where it depends on data; `newest` the nodes the last op
    added (None where data decides which), `newest_count` at most how many; `ragged` trees may be
    shorter for some requests; `laws` says how children came about; `lineage` names the trees this
    one extends, itself included.
    """

    nodes: int = 0
    depth: int = 0
    parents: tuple[int, ...] | None = ()
    newest: tuple[int, ...] | None = (ROOT,)
    newest_count: int = 1
    placed: tuple[int, ...] = ()
    ragged: bool = False
    laws: frozenset[str] = frozenset()
    dropped_draws: bool = False
    probes: bool = False
    rows: str | None = None
    lineage: frozenset[str] = frozenset()

    @property
    def depths(self) -> tuple[int, ...] | None:
        """Depth of each node, 1 for children of the root; None when the shape is not static."""
        if self.parents is None:
            return None
        found: list[int] = []
        for parent in self.parents:
            found.append(1 if parent == ROOT else found[parent] + 1)
        return tuple(found)

    @property
    def ranks(self) -> tuple[int, ...] | None:
        """Order of each node among its siblings; None when the shape is not static."""
        if self.parents is None:
            return None
        seen: dict[int, int] = {}
        found: list[int] = []
        for parent in self.parents:
            found.append(seen.get(parent, 0))
            seen[parent] = found[-1] + 1
        return tuple(found)

    @property
    def leaves(self) -> tuple[int, ...] | None:
        """Nodes without children, the root of an empty tree; None when data decides."""
        if self.parents is None:
            return None
        inner = set(self.parents)
        return tuple(i for i in range(self.nodes) if i not in inner) or (ROOT,)

    @property
    def is_chain(self) -> bool | None:
        """True when no node has two children; None when data decides."""
        if self.parents is None:
            return True if self.nodes <= self.depth else None
        return len(set(self.parents)) == len(self.parents)

    def related(self, other: frozenset[str]) -> bool:
        """True when one of the two trees extends the other."""
        return bool(self.lineage & other)

    def renamed(self, name: str) -> TreeType:
        """The same tree under one more name."""
        return replace(self, lineage=self.lineage | {name})


@dataclass(frozen=True, slots=True)
class NodesType:
    """At most `width` nodes of a tree; `indices` where they are static.

    `closed` sets hold every ancestor of their members; `seen` is the size of the tree whose leaves
    they were, so that nodes grown since lie below them (0 for other picks).
    """

    width: int
    indices: tuple[int, ...] | None
    lineage: frozenset[str]
    root: bool = False
    closed: bool = False
    seen: int = 0


@dataclass(frozen=True, slots=True)
class RowsType:
    """One vector per node, from `model`; `exact` when the whole stack computed them in full."""

    width: int
    indices: tuple[int, ...] | None
    lineage: frozenset[str]
    model: str
    exact: bool


@dataclass(frozen=True, slots=True)
class NumberType:
    """One number per request."""


@dataclass(frozen=True, slots=True)
class FlagType:
    """One truth value per request."""


@dataclass(frozen=True, slots=True)
class UniformsType:
    """`count` numbers in [0, 1) per request."""

    count: int


@dataclass(frozen=True, slots=True)
class PathType:
    """Judged nodes in order, at most `depth`, and a bonus token; out of `nodes` judged nodes."""

    depth: int
    nodes: int
    rule: Entry
    exact: bool
    emitted: bool = False
    chain: bool = False
    dropped_draws: bool = False
    laws: frozenset[str] = frozenset()
    rows: str | None = None


Type: TypeAlias = TreeType | NodesType | RowsType | NumberType | FlagType | UniformsType | PathType
