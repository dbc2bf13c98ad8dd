"""`root`: the tree without drafted nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.backends.ops.tensors.values import Tree
from specplan.ir.ops import Root


def root(op: Root, *, root: Tree) -> Tree:
    """The tree that whoever runs the op makes of its texts."""
    return root


def first_tree(tokens: Tensor, keys: Tensor, scores: torch.dtype | None) -> Tree:
    """The tree without drafted nodes.

    Args:
        tokens: the last of each text, int64 `[B, 1]`.
        keys: of the texts, int64 `[B, 1]`.
        scores: of which type scores are; None where none are asked for.
    """
    zero = torch.zeros_like(tokens)
    score = None if scores is None else zero.to(scores)
    return Tree(
        tokens, zero, zero, torch.ones_like(zero, dtype=torch.bool), keys, zero - 1,
        own=score, scores=score, tips=range(1), layered=True,
    )  # fmt: skip
