"""What the interpreter holds for each SSA value.

A node's index in a tree that only grows is its number for the whole round, in every tree that
extends it. What is the same for all requests is a tuple; what a choice by score made differ by
request is a tensor with one row per request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from specplan.ir.types import ROOT
from specplan.ir.values import Value

T = TypeVar("T")

Indices = tuple[int, ...] | Tensor
"""Nodes, the same for all requests, or int64 `[B, W]`."""


@dataclass(frozen=True)
class Tree:
    """Drafted nodes of all requests.

    Attributes:
        tokens: int64 `[B, N]`.
        parents: per node, its parent or -1; the same for all requests, or int64 `[B, N]`.
        depths: per node, 1 for children of the root; like `parents`.
        live: bool `[B, N]`, None when all are.
        laws: `[B, Q, V]`, the laws that tokens were drawn from; None when none was drawn.
        law_index: per node, its row of `laws`, or -1; like `parents`.
        distinct: siblings were drawn without replacement.
        newest: nodes the last op added; the root alone at first.
        levels: no node is deeper.
        branches: some node may have two children, where shapes differ by request.
        in_place: it is a chain whose live nodes stand at the places of their depths, where shapes
            differ by request.
        widest: no node has more children.
        scores: path scores `[B, N]`, see `specplan.backends.reference.growing`; None where no
            round of the plan asks for them.
        numbers: per node, the round's number of it, where the tree was joined (the same for all
            requests) or pruned (int64 `[B, N]`); None where they go up from `first`.
        most: no number is higher, where `numbers` is given.
        first: the round's number of node 0, where `numbers` is None. Trees that share no nodes
            begin at different numbers.
    """

    tokens: Tensor
    parents: Indices = ()
    depths: Indices = ()
    live: Tensor | None = None
    laws: Tensor | None = None
    law_index: Indices = ()
    distinct: bool = False
    newest: tuple[int, ...] = (ROOT,)
    levels: int = 0
    branches: bool = True
    in_place: bool = False
    widest: int = 0
    scores: Tensor | None = None
    numbers: Indices | None = None
    most: int = ROOT
    first: int = 0

    @property
    def size(self) -> int:
        """Nodes, N."""
        return self.tokens.shape[1]

    @property
    def highest(self) -> int:
        """The highest number that a node may have."""
        return self.first + self.size - 1 if self.numbers is None else self.most

    @property
    def own(self) -> bool:
        """Whether requests have shapes of their own."""
        return isinstance(self.parents, Tensor)

    @property
    def is_chain(self) -> bool:
        """True when no node has two children."""
        if isinstance(self.parents, Tensor):
            return not self.branches
        return len(set(self.parents)) == self.size

    def ancestors(self, node: int) -> list[int]:
        """The node itself and its ancestors, the root left out; of a shape that all share."""
        assert isinstance(self.parents, tuple)
        found = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found

    def numbered(self, nodes: Iterable[int]) -> list[int]:
        """The same of nodes that all requests share, -1 for the root; the tree was not pruned."""
        if self.numbers is None:
            return [node if node == ROOT else node + self.first for node in nodes]
        known = shared_by_all(self.numbers)
        return [node if node == ROOT else known[node] for node in nodes]

    def lines(self, nodes: Tensor) -> Tensor:
        """Nodes `[B, W]` and their ancestors, the root left out, as int64 `[B, W, levels]`.

        A shorter line repeats its topmost node.
        """
        parents = per_request(self.parents, self.tokens)
        steps = [nodes]
        for _ in range(self.levels - 1):
            above = parents.gather(1, steps[-1])
            steps.append(torch.where(above == ROOT, steps[-1], above))
        return torch.stack(steps, -1)

    def numbers_of(self, nodes: Tensor) -> Tensor:
        """The round's numbers of nodes `[B, ...]`."""
        if self.numbers is None:
            return nodes + self.first if self.first else nodes
        return per_request(self.numbers, nodes).gather(1, nodes.flatten(1)).view_as(nodes)


@dataclass(frozen=True)
class Nodes:
    """Some nodes of a tree; those that differ by request do not hold the root, but as tips.

    Attributes:
        tree: whose nodes.
        indices: which.
        tips: they are the tips of a chain, one for each request, be it the root.
    """

    tree: Tree
    indices: Indices
    tips: bool = False

    @property
    def holds_root(self) -> bool:
        """Whether the root is among them."""
        return isinstance(self.indices, tuple) and ROOT in self.indices

    @property
    def drafted(self) -> Indices:
        """All but the root."""
        if isinstance(self.indices, Tensor):
            return self.indices
        return tuple(node for node in self.indices if node != ROOT)

    @property
    def width(self) -> int:
        """Nodes, the root left out."""
        drafted = self.drafted
        return drafted.shape[1] if isinstance(drafted, Tensor) else len(drafted)

    @property
    def own(self) -> bool:
        """Whether requests have nodes of their own here."""
        return isinstance(self.indices, Tensor) or self.tree.own


@dataclass(frozen=True)
class Rows:
    """Logits `[B, R, V]` of the nodes `indices`."""

    logits: Tensor
    indices: Indices

    def of(self, wanted: Indices) -> Tensor:
        """Logits of these nodes, in this order."""
        if wanted is self.indices:
            return self.logits
        if isinstance(self.indices, Tensor):
            raise AssertionError("rows of other nodes are refused before a plan runs")
        if isinstance(wanted, Tensor):
            return self._of_each(self.indices, wanted)
        if wanted == self.indices:
            return self.logits
        places = [self.indices.index(node) for node in wanted]
        if places == list(range(places[0], places[0] + len(places))):
            return self.logits[:, places[0] : places[0] + len(places)]
        return self.logits[:, torch.tensor(places, device=self.logits.device)]

    def _of_each(self, known: tuple[int, ...], wanted: Tensor) -> Tensor:
        """Logits of the nodes `[B, W]` that each request wants."""
        place_of = [0] * (max(known) + 2)
        for place, node in enumerate(known):
            place_of[node + 1] = place
        places = torch.tensor(place_of, device=wanted.device)[wanted + 1]
        return self.logits.gather(1, places[:, :, None].expand(-1, -1, self.logits.shape[2]))


@dataclass(frozen=True)
class Path:
    """A judged path: accepted nodes per request, and the tokens they and the bonus carry.

    Nodes go by the round's numbers. `chain` paths come from trees in which no node has two
    children.
    """

    nodes: list[list[int]]
    tokens: list[list[int]]
    chain: bool


Held = Tree | Nodes | Rows | Path | Tensor
Scope = dict[Value, Held]


def live_mask(tree: Tree) -> Tensor:
    """Which nodes are live, bool `[B, N]`."""
    if tree.live is None:
        return torch.ones_like(tree.tokens, dtype=torch.bool)
    return tree.live


def per_request(nodes: Indices, like: Tensor) -> Tensor:
    """One row per request, int64 `[B, W]`, on the device of `like` `[B, ...]`."""
    if isinstance(nodes, Tensor):
        return nodes
    return torch.tensor(nodes, dtype=torch.int64, device=like.device).expand(like.shape[0], -1)


def shared_by_all(indices: Indices) -> tuple[int, ...]:
    """Nodes, or numbers of nodes, where the plan is refused unless all requests share them."""
    assert isinstance(indices, tuple)
    return indices


def held_as(scope: Mapping[Value, object], name: Value, kind: type[T]) -> T:
    """What a name holds, which the verifier knows to be of this kind."""
    held = scope[name]
    if not isinstance(held, kind):
        raise AssertionError(f"%{name} is no {kind.__name__}; the verifier checks this")
    return held


def nodes_as(scope: Mapping[Value, object], name: Value) -> Nodes:
    """Nodes, or a tree taken as all its nodes with the root."""
    held = scope[name]
    if isinstance(held, Tree):
        return Nodes(held, (ROOT, *range(held.size)))
    return held_as(scope, name, Nodes)
