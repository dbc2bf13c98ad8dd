"""Ops that make, change and choose from trees of drafted tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from specplan.ir.base_op import BaseOp
from specplan.ir.values import Entry, State, Value

Placement: TypeAlias = Literal["newest", "leaves", "all", "from", "placed"]


@dataclass(frozen=True, kw_only=True)
class Root(BaseOp):
    """The tree without drafted nodes; `rows` names a row group."""

    keyword = "root"
    rows: str | None = None


@dataclass(frozen=True, kw_only=True)
class Grow(BaseOp):
    """Children of the nodes `at`, ranked or drawn from `rows` under the law.

    `children` is one count for every node or one per node (0 attaches only the law row);
    `how` says best ranks, independent draws, draws without replacement, or the same by a race that
    whoever has its number can run too (`shared`); `by` gives one uniform per draw, for shared ones
    number d to all children of nodes at depth d; `keep` bounds the new nodes to the best of them.
    """

    keyword = "grow"
    positional = ("tree",)
    tree: Value
    at: Value
    rows: Value
    children: int | tuple[int, ...] = 1
    how: Literal["best", "draw", "draw_distinct", "shared"] = "best"
    by: Value | None = None
    keep: int | None = None
    law: Entry = Entry("request")


@dataclass(frozen=True, kw_only=True)
class Lookup(BaseOp):
    """Continuations, found in a source, of the text that ends at the nodes `at`.

    `match` is the shortest and longest suffix looked for, in tokens; `length` the tokens of one
    continuation; `children` the continuations per node; `nodes` bounds the new nodes.
    """

    keyword = "lookup"
    positional = ("source", "tree")
    source: State
    tree: Value
    at: Value
    match: tuple[int, ...] = ()
    children: int | tuple[int, ...] = 1
    length: int = 1
    nodes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Place(BaseOp):
    """A chain of constant tokens below each of the nodes `at`; probes are never accepted."""

    keyword = "place"
    positional = ("tree",)
    tree: Value
    at: Value
    tokens: tuple[int, ...]
    probe: bool = False
    upto: int | None = None


@dataclass(frozen=True, kw_only=True)
class Relabel(BaseOp):
    """The same tree with new tokens: argmax of `rows`, tokens of `other`, or one `token`."""

    keyword = "relabel"
    positional = ("tree",)
    tree: Value
    rows: Value | None = None
    align: Literal["parent", "self"] = "parent"
    other: Value | None = None
    map: tuple[int, ...] = ()
    token: int | None = None
    at: Value | None = None


@dataclass(frozen=True, kw_only=True)
class Graft(BaseOp):
    """Trees joined at the root; equal siblings are kept apart or merged.

    Merged, what hangs below equal siblings hangs below the first of them. The others stay, each
    with the law that it was drawn from; of those that were not drawn the first alone is left, and
    its path score is that of the summed probabilities of all their paths.
    """

    keyword = "graft"
    positional = ("trees",)
    trees: tuple[Value, ...]
    same: Literal["keep", "merge"] = "keep"


@dataclass(frozen=True, kw_only=True)
class Pick(BaseOp):
    """Nodes of a tree: by place, by index, or the best or worst by score.

    A path score sums the log-probabilities along a node's path, of the rows that its tokens were
    ranked by, as they are: temperature 1, nothing left out, whatever the request's settings; what
    was looked up is certain. Among equals the shallower comes first, then the earlier.
    """

    keyword = "pick"
    positional = ("tree",)
    tree: Value
    of: Placement
    at: Value | None = None
    nodes: tuple[int, ...] | None = None
    best: int | None = None
    worst: int | None = None
    by: Literal["path", "own"] = "path"
    count: Value | None = None


@dataclass(frozen=True, kw_only=True)
class Prune(BaseOp):
    """The nodes `to` and their ancestors, renumbered parents first."""

    keyword = "prune"
    positional = ("tree",)
    tree: Value
    to: Value


@dataclass(frozen=True, kw_only=True)
class Reroot(BaseOp):
    """What survives of the tree below the emitted path."""

    keyword = "reroot"
    positional = ("tree", "path")
    tree: Value
    path: Value
    take: Literal["match", "placed"] = "match"
    nodes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Adopt(BaseOp):
    """A path judged inside the round, bonus included, becomes drafted nodes with law `rows`."""

    keyword = "adopt"
    positional = ("tree", "path")
    tree: Value
    path: Value
    rows: Value
