"""What a graph holds for each SSA value: the interpreter's values, and paths as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from specplan.backends.reference.values import Nodes, Rows, Tree
from specplan.ir.values import Value


@dataclass(frozen=True)
class Path:
    """A judged path.

    Attributes:
        nodes: the round's numbers of accepted nodes, int64 `[B, D]`; those beyond `count` are any.
        tokens: what they and the bonus carry, int64 `[B, D + 1]`.
        accepted: accepted nodes, int64 `[B]`.
        count: tokens of the path, int64 `[B]`: the accepted ones and the bonus, until a text's end
            cuts them.
        highest: no node has a higher number.
        chain: it comes from a tree in which no node has two children.
    """

    nodes: Tensor
    tokens: Tensor
    accepted: Tensor
    count: Tensor
    highest: int
    chain: bool


Held: TypeAlias = Tree | Nodes | Rows | Path | Tensor
Scope: TypeAlias = dict[Value, Held]
