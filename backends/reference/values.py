"""What the interpreter holds for each SSA value.

Trees only grow here, so the index of a node is its identity for the whole round, in every tree
that extends another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.ir.types import ROOT


@dataclass(frozen=True)
class Tree:
    """Drafted nodes of all requests.

    Attributes:
        tokens: int64 `[B, N]`.
        parents: per node, its parent or -1; the same for all requests.
        depths: per node, 1 for children of the root.
        live: bool `[B, N]`, None when all are.
        laws: `[B, Q, V]`, the laws that tokens were drawn from; None when none was drawn.
        law_index: per node, its row of `laws`, or -1.
        distinct: siblings were drawn without replacement.
        newest: nodes the last op added; the root alone at first.
    """

    tokens: Tensor
    parents: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    live: Tensor | None = None
    laws: Tensor | None = None
    law_index: tuple[int, ...] = ()
    distinct: bool = False
    newest: tuple[int, ...] = (ROOT,)

    @property
    def size(self) -> int:
        """Nodes, N."""
        return len(self.parents)

    def ancestors(self, node: int) -> list[int]:
        """The node itself and its ancestors, the root left out."""
        found = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found


@dataclass(frozen=True)
class Nodes:
    """Some nodes of a tree."""

    tree: Tree
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Logits `[B, R, V]` of the nodes `indices`."""

    logits: Tensor
    indices: tuple[int, ...]

    def of(self, wanted: tuple[int, ...]) -> Tensor:
        """Logits of these nodes, in this order."""
        if wanted == self.indices:
            return self.logits
        places = [self.indices.index(node) for node in wanted]
        if places == list(range(places[0], places[0] + len(places))):
            return self.logits[:, places[0] : places[0] + len(places)]
        return self.logits[:, torch.tensor(places, device=self.logits.device)]


@dataclass(frozen=True)
class Path:
    """A judged path: accepted nodes per request, and the tokens they and the bonus carry.

    `chain` paths come from trees in which no node has two children.
    """

    nodes: list[list[int]]
    tokens: list[list[int]]
    chain: bool


Held = Tree | Nodes | Rows | Path | Tensor
