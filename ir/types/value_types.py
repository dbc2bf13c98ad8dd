"""Static types of values: the largest size of everything, known before anything runs.

Node indices count drafted nodes from 0, parents before children; -1 is the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specplan.ir.values import Entry, Value

ROOT = -1
RACES = frozenset({"shared", "minhash"})
"""`grow how=`: draws by races over one number per depth, which rules can replay."""


class Lineage:
    """Identity and shape of a tree; `above` is the tree that it extends, node for node."""

    __slots__ = ("above", "drawn", "height", "nodes", "parents")

    def __init__(
        self,
        above: Lineage | None,
        nodes: int,
        parents: tuple[int, ...] | None,
        drawn: bool = False,
    ) -> None:
        self.drawn = drawn
        self.above = above
        self.nodes = nodes
        self.parents = parents
        self.height: int = 0 if above is None else above.height + 1

    def ancestor(self, height: int) -> Lineage:
        """The tree of that height among those this one extends, or this one if it is lower."""
        tree = self
        while tree.height > height and tree.above is not None:
            tree = tree.above
        return tree

    def extends(self, other: Lineage) -> bool:
        """True when the other tree is this one or stands above it."""
        return self.ancestor(other.height) is other

    def related(self, other: Lineage | None) -> bool:
        """True when one of the two trees extends the other."""
        return other is not None and (self.extends(other) or other.extends(self))

    def common(self, other: Lineage | None) -> Lineage | None:
        """The largest tree that both extend, None when there is none."""
        if other is None:
            return None
        mine: Lineage | None = self.ancestor(other.height)
        yours: Lineage | None = other.ancestor(self.height)
        while mine is not yours and mine is not None and yours is not None:
            mine, yours = mine.above, yours.above
        return mine


def depths_of(parents: Sequence[int]) -> list[int]:
    """Depth of each node, 1 for children of the root, whose number is -1."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return depths


@dataclass(frozen=True, slots=True)
class TreeType:
    """A tree of at most `nodes` drafted nodes and `depth` levels below the root.

    `parents` is the static shape, None where it depends on data; `newest` the nodes the last op
    added (None where data decides which), `newest_count` at most how many, `tips` whether none of
    them has a child; `ragged` trees may be
    shorter for some requests; in a `chain` no node has two children; `origins` says how nodes
    came about (`how=` of `grow`, or "given"), `siblings` whether nodes with several children drew
    them with replacement (`draw`) or without (`draw_distinct`). In a `whole` tree all logits that
    children were grown from are exact; with `root_logits` one of them is the root's. `lineage`
    identifies the tree for its nodes and logits.
    """

    nodes: int = 0
    depth: int = 0
    parents: tuple[int, ...] | None = ()
    newest: tuple[int, ...] | None = (ROOT,)
    newest_count: int = 1
    tips: bool = False
    ragged: bool = False
    chain: bool = True
    origins: frozenset[str] = frozenset()
    siblings: frozenset[str] = frozenset()
    dropped_draws: bool = False
    whole: bool = True
    root_logits: bool = False
    lineage: Lineage | None = None

    @property
    def depths(self) -> tuple[int, ...] | None:
        """Depth of each node, 1 for children of the root; None when the shape is not static."""
        if self.parents is None:
            return None
        return tuple(depths_of(self.parents))

    @property
    def ranks(self) -> tuple[int, ...] | None:
        """Order of each node among its siblings; None when the shape is not static."""
        if self.parents is None:
            return None
        seen: dict[int, int] = {}
        ranks: list[int] = []
        for parent in self.parents:
            ranks.append(seen.get(parent, 0))
            seen[parent] = ranks[-1] + 1
        return tuple(ranks)

    @property
    def leaves(self) -> tuple[int, ...] | None:
        """Nodes without children, the root of an empty tree; None when data decides."""
        if self.parents is None:
            return None
        inner = set(self.parents)
        return tuple(i for i in range(self.nodes) if i not in inner) or (ROOT,)

    @property
    def is_chain(self) -> bool:
        """True when no node can have two children."""
        if self.parents is None:
            return self.chain
        return len(set(self.parents)) == len(self.parents)

    @property
    def drawn(self) -> bool:
        """Whether some node was drawn."""
        return bool(self.origins & {"draw", "draw_distinct", *RACES})


@dataclass(frozen=True, slots=True)
class NodesType:
    """At most `width` nodes of a tree; `indices` where they are static.

    With `root` the root is always one of them; `closed` sets hold every ancestor of their members;
    `seen` is the size of the tree in which none of them had a child, so that what is below them was
    grown since (0 for other picks); `among` are the nodes that data chooses them from, where those
    are static.
    """

    width: int
    indices: tuple[int, ...] | None
    lineage: Lineage | None
    root: bool = False
    closed: bool = False
    seen: int = 0
    among: tuple[int, ...] | None = None

    @property
    def possible(self) -> tuple[int, ...] | None:
        """The nodes, or those that data chooses them from; None where these are not known."""
        return self.among if self.indices is None else self.indices


@dataclass(frozen=True, slots=True)
class LogitsType:
    """Logits of each node from `model`, for `levels` tokens ahead.

    `exact` ones were computed by the model's whole stack on its full cache; `model` is "" where
    several models contributed. `bounded` ones are exact where a calibrated flag is true. With
    `root` one of the nodes is the root.
    """

    width: int
    indices: tuple[int, ...] | None
    lineage: Lineage | None
    model: str
    exact: bool
    levels: int = 1
    bounded: bool = False
    root: bool = False


@dataclass(frozen=True, slots=True)
class StatesType:
    """The hidden states of nodes of a tree after a layer."""

    lineage: Lineage | None


@dataclass(frozen=True, slots=True)
class NumberType:
    """One number per request.

    A `drawn` one depends on nodes that were drawn in the round, a `calibrated` one on a number that
    was tested before the plan runs, a `shared` one on other requests of the batch.
    """

    drawn: bool = False
    calibrated: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class FlagType:
    """One truth value per request; see `NumberType`."""

    drawn: bool = False
    calibrated: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class UniformsType:
    """`count` numbers in [0, 1) per request."""

    count: int


@dataclass(frozen=True, slots=True)
class PathType:
    """Accepted nodes in order, at most `depth` out of `nodes` judged ones, and a bonus token.

    A `whole` path starts at the root. It is `exact` where it was judged by the target's own logits,
    `stated` by exact logits of any model or mixture, `bounded` by logits that are exact where a
    calibrated flag is true; `target` names these logits. `below` is the tree without the judged
    nodes. In a `chain` no node has two children.
    """

    depth: int
    nodes: int
    rule: Entry
    exact: bool
    target: Value | None = None
    whole: bool = True
    chain: bool = False
    emitted: bool = False
    dropped_draws: bool = False
    stated: bool = False
    bounded: bool = False
    below: Lineage | None = None
    lineage: Lineage | None = None


Type: TypeAlias = (
    TreeType | NodesType | LogitsType | StatesType | NumberType | FlagType | UniformsType | PathType
)
