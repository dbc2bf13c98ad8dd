"""The values of a running plan (nodes, trees, opaque logits), as the `oracle` backend defines them.

A node *is* its path: the tokens from the beginning of the text to it. So logits are keyed by
paths; a node with another token is another node and has none; siblings with one token share
theirs. Dead nodes stay in their tree, because nodes, uniforms and `map=` go by number, and nothing
else looks at them.

Logits and distributions are opaque here: a `World` computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from specplan.ir.types.value_types import RACES, ROOT
from specplan.ir.values import Value

Path: TypeAlias = tuple[int, ...]
Vector: TypeAlias = Any
"""Logits or probabilities over the vocabulary, `[V]`."""
Scope: TypeAlias = dict[Value, Any]


@dataclass(frozen=True)
class Node:
    """A drafted token.

    Attributes:
        token: of the vocabulary.
        parent: its parent's number, `ROOT` for the last token of the text.
        live: False for a node that is not there.
        score: the log-probability that it adds to the score of its path.
        how: what `grow how=` says of it; "given" where it was looked up, placed or relabelled.
        logits: those that it was grown from; None for given nodes.
        noise: of a path that was drawn without replacement, its perturbed log-probability.
    """

    token: int
    parent: int
    live: bool = True
    score: float = 0.0
    how: str = "given"
    logits: Vector | None = None
    noise: float = 0.0

    @property
    def drawn(self) -> bool:
        """Whether it was drawn from the distribution of its logits."""
        return self.how in ("draw", "draw_distinct", *RACES)


@dataclass(frozen=True)
class Tree:
    """Drafted nodes below the end of a text, parents before children.

    Attributes:
        base: the text, whose last token is the root.
        nodes: dead ones included.
        newest: numbers of the nodes that the last op added.
        attached: logits of nodes that were grown without children (`children=0`), by number.
    """

    base: Path
    nodes: tuple[Node, ...] = ()
    newest: tuple[int, ...] = (ROOT,)
    attached: Mapping[int, Vector] = field(default_factory=dict)

    def ancestors(self, number: int) -> list[int]:
        """The node and those above it, upwards; the root is not one."""
        line = []
        while number != ROOT:
            line.append(number)
            number = self.nodes[number].parent
        return line

    def path(self, number: int) -> Path:
        """The text, and the tokens from its end to the node."""
        return self.base + tuple(self.nodes[i].token for i in reversed(self.ancestors(number)))

    def depth(self, number: int) -> int:
        """Edges from the root."""
        return len(self.ancestors(number))

    def score(self, number: int) -> float:
        """Log-probability of the path."""
        return sum(self.nodes[i].score for i in self.ancestors(number))

    @cached_property
    def living(self) -> frozenset[int]:
        """Nodes that are there, the root among them: live, and so is every node above."""
        alive = {ROOT}
        for number, node in enumerate(self.nodes):
            if node.live and node.parent in alive:
                alive.add(number)
        return frozenset(alive)

    def children(self, number: int) -> list[int]:
        """Live children."""
        return [i for i in self.live_nodes if self.nodes[i].parent == number]

    def below(self, tops: Iterable[int]) -> list[int]:
        """All nodes under some, dead ones too, these not included."""
        over, under = set(tops), []
        for number, node in enumerate(self.nodes):
            if node.parent in over:
                over.add(number)
                under.append(number)
        return under

    @property
    def live_nodes(self) -> list[int]:
        """Drafted nodes that are there."""
        return sorted(self.living - {ROOT})

    @property
    def leaves(self) -> list[int]:
        """Live nodes without live children; the root where nothing was drafted."""
        inner = {self.nodes[i].parent for i in self.live_nodes}
        return [i for i in self.live_nodes if i not in inner] or [ROOT]

    def grown(self, new: Iterable[Node]) -> Tree:
        """The tree with more nodes."""
        nodes = (*self.nodes, *new)
        return replace(self, nodes=nodes, newest=tuple(range(len(self.nodes), len(nodes))))

    def filled_to(self, size: int) -> Tree:
        """The tree with dead nodes behind its own, as many as data may leave out."""
        missing = size - len(self.nodes)
        if missing <= 0:
            return self
        nodes = (*self.nodes, *[Node(0, ROOT, live=False)] * missing)
        newest = (*(i for i in self.newest if i != ROOT), *range(len(self.nodes), size))
        return replace(self, nodes=nodes, newest=newest)

    def only(self, chosen: Iterable[int]) -> Tree:
        """These nodes and their ancestors, renumbered in order."""
        order = sorted({i for number in chosen for i in self.ancestors(number)})
        place = {ROOT: ROOT, **{old: new for new, old in enumerate(order)}}
        nodes = tuple(replace(self.nodes[i], parent=place[self.nodes[i].parent]) for i in order)
        attached = {place[i]: logits for i, logits in self.attached.items() if i in place}
        return Tree(self.base, nodes, tuple(range(len(nodes))) or (ROOT,), attached)

    def ranked(
        self, among: Iterable[int], count: int, *, worst: bool = False, own: bool = False
    ) -> list[int]:
        """The best nodes by score, in order of number; among equals the shallower, the earlier."""

        def key(number: int) -> tuple[float, int, int]:
            score = self.nodes[number].score if own else self.score(number)
            return (score if worst else -score, self.depth(number), number)

        return sorted(sorted(among, key=key)[:count])

    @property
    def numbers(self) -> list[int]:
        """The root and all nodes."""
        return [ROOT, *range(len(self.nodes))]


@dataclass(frozen=True)
class Picked:
    """Some nodes of a tree, by number."""

    tree: Tree
    numbers: Sequence[int]


@dataclass(frozen=True)
class Logits:
    """Logits by path; of a node, one vector for each level below it that the model looks ahead.

    Level 0 says what follows the node, level j what lies j nodes deeper.

    Attributes:
        of: as the model gave them.
        left: what a request's grammar leaves of logits after a path; None without a grammar.
    """

    of: Mapping[Path, Sequence[Vector]] = field(default_factory=dict)
    left: Callable[[Path, Vector], Vector] | None = None

    def own(self, path: Path) -> Vector | None:
        """What follows a node, by its own logits."""
        return self._at(path, self.of[path][0]) if path in self.of else None

    def ahead(self, tree: Tree, number: int) -> Vector | None:
        """What follows a node: by its own logits, or by that level of its nearest ancestor's."""
        for level, above in enumerate([*tree.ancestors(number), ROOT]):
            levels = self.of.get(tree.path(above))
            if levels is not None:
                return self._at(tree.path(number), levels[level]) if level < len(levels) else None
        return None

    def _at(self, path: Path, vector: Vector) -> Vector:
        return vector if self.left is None else self.left(path, vector)


@dataclass(frozen=True)
class Judged:
    """A path of accepted nodes below `start`, and the token after them, if there is one.

    A dead path is none: the logits at its start are missing.
    """

    tree: Tree
    nodes: tuple[int, ...] = ()
    bonus: int | None = None
    start: int = ROOT
    dead: bool = False

    @property
    def tokens(self) -> Path:
        """What the path says."""
        if self.dead:
            return ()
        tokens = tuple(self.tree.nodes[i].token for i in self.nodes)
        return tokens if self.bonus is None else (*tokens, self.bonus)


def numbered(value: Tree | Picked) -> Picked:
    """Nodes; a tree stands for all its nodes and the root."""
    return Picked(value, value.numbers) if isinstance(value, Tree) else value


def counts_of(children: int | tuple[int, ...], width: int) -> tuple[int, ...]:
    """How many children each of `width` nodes gets."""
    return children if isinstance(children, tuple) else (children,) * width
