"""What a rule judges, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.ir.types.value_types import depths_of


@dataclass(frozen=True)
class DraftedTree:
    """Drafted nodes in an order in which parents precede children; the root is not a node.

    Siblings are judged in order of node index.

    Attributes:
        tokens: int64 `[B, N]`.
        parents: per node, the parent's index or -1 for the root; the same for all rows (tuple) or
            int64 `[B, N]`.
        live: bool `[B, N]`, or None when all are. A node below a dead node is never accepted.
        probs: `[B, Q, V]`, the distributions that tokens were drawn from; None when no node was
            drawn.
        probs_index: per node, the row of `probs` that it was drawn from, -1 for a node that was not
            drawn (a child that was ranked or looked up); the same for all batch rows (tuple) or
            int64 `[B, N]`.
        distinct: siblings with one row of `probs` were drawn without replacement (`draw_distinct`),
            else independently (`draw`).
        levels: a bound of the longest path in edges; None: read off `parents`.
        widest: a bound of the children of one node; None: read off `parents`.
    """

    tokens: Tensor
    parents: tuple[int, ...] | Tensor
    live: Tensor | None = None
    probs: Tensor | None = None
    probs_index: tuple[int, ...] | Tensor | None = None
    distinct: bool = True
    levels: int | None = None
    widest: int | None = None

    @property
    def size(self) -> int:
        """Nodes, N."""
        return self.tokens.shape[1]

    def parent_lists(self) -> list[list[int]]:
        """Parents per row, on the host."""
        return _lists(self.parents, self.tokens.shape[0])

    def probs_lists(self) -> list[list[int]]:
        """Rows of `probs` per batch row, on the host; all -1 when no node was drawn."""
        if self.probs_index is None:
            return [[-1] * self.size for _ in range(self.tokens.shape[0])]
        return _lists(self.probs_index, self.tokens.shape[0])

    def parent_tensor(self) -> Tensor:
        """Parents as int64 `[B, N]`."""
        return _tensor(self.parents, self.tokens)

    def probs_tensor(self) -> Tensor:
        """Rows of `probs` as int64 `[B, N]`."""
        if self.probs_index is None:
            return torch.full_like(self.tokens, -1)
        return _tensor(self.probs_index, self.tokens)

    def live_mask(self) -> Tensor:
        """Liveness as bool `[B, N]`."""
        if self.live is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return self.live

    def node_probs(self, like: Tensor) -> Tensor:
        """Draft probabilities of each node `[B, N, V]`, one-hot if not drawn; `like` `[B,*,V]`."""
        shape = (*self.tokens.shape, like.shape[2])
        points = like.new_zeros(shape).scatter_(2, self.tokens[:, :, None], 1.0)
        if self.probs is None:
            return points
        if self.probs_index == tuple(range(self.size)):
            return self.probs[:, : self.size].to(like.dtype)
        index = self.probs_tensor()[:, :, None]
        rows = self.probs.gather(1, index.clamp(min=0).expand(shape)).to(like.dtype)
        return torch.where(index < 0, points, rows)

    @property
    def depth(self) -> int:
        """Longest path in edges, of any row."""
        if self.levels is not None:
            return self.levels
        if isinstance(self.parents, Tensor):
            return _deepest(self.parents)
        return max(depths_of(self.parents), default=0)

    @property
    def width(self) -> int:
        """Most children of one node, of any row."""
        if self.widest is not None:
            return self.widest
        if isinstance(self.parents, Tensor):
            counts = torch.zeros_like(self.parents[:, :1]).repeat(1, self.size + 1)
            counts.scatter_add_(1, self.parents + 1, torch.ones_like(self.parents))
            return int(counts.max()) if self.size else 0
        return max((self.parents.count(parent) for parent in set(self.parents)), default=0)


@dataclass(frozen=True)
class Judged:
    """The outcome for each row.

    Attributes: path: int64 `[B, D]`, accepted nodes from the top, padded with -1. accepted: int64
        `[B]`, how many. bonus: int64 `[B]`, the token after them, of the target's own distribution
        (the bonus, or the
            correction where a node was rejected).
    """

    path: Tensor
    accepted: Tensor
    bonus: Tensor


def _deepest(parents: Tensor) -> int:
    """Levels of the deepest tree of parents `[B, N]`."""
    nodes = torch.arange(parents.shape[1], device=parents.device).expand_as(parents)
    levels = 0
    while bool((nodes >= 0).any()):
        nodes = parents.gather(1, nodes.clamp(min=0)).where(nodes >= 0, -1)
        levels += 1
    return levels


def _lists(value: tuple[int, ...] | Tensor, batch: int) -> list[list[int]]:
    if isinstance(value, Tensor):
        return value.tolist()
    return [list(value)] * batch


def _tensor(value: tuple[int, ...] | Tensor, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.int64, device=like.device).expand(like.shape[0], -1)


def judged_of(paths: list[list[int]], bonuses: list[int], depth: int, like: Tensor) -> Judged:
    """Pack host results; `depth` is the width of `path`."""
    padded = [path + [-1] * (depth - len(path)) for path in paths]
    return Judged(
        path=torch.tensor(padded, dtype=torch.int64, device=like.device).view(len(paths), depth),
        accepted=torch.tensor([len(path) for path in paths], device=like.device),
        bonus=torch.tensor(bonuses, device=like.device),
    )


def judged_without_nodes(tree: DraftedTree, bonus: Tensor) -> Judged:
    """The outcome when nothing was drafted: the bonus alone."""
    return Judged(path=tree.tokens[:, :0], accepted=torch.zeros_like(bonus), bonus=bonus)
