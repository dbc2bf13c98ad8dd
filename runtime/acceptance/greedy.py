"""Rule `greedy`: a node is accepted when its token is the target's first choice.

Lossless at temperature 0. Source: Leviathan et al. 2022, arXiv 2211.17192, with one-hot
distributions.
"""

from __future__ import annotations

from torch import Tensor

from specplan.runtime.acceptance._walks import follow, follow_reference, follow_vectorised
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "logits"
"""What `target` holds; distributions serve as well, they have the same first choice."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: unused.

    Returns:
        The longest path of first choices; among siblings with one token, the earliest.
    """
    return follow(tree, target.argmax(-1))


def accept_vectorised(tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None) -> Judged:
    """`accept` in tensor ops, a loop over depth and never over the batch."""
    return follow_vectorised(tree, target.argmax(-1))


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None) -> Judged:
    """`accept` as a walk down the tree, row by row."""
    return follow_reference(tree, lambda row, node: int(target[row, node + 1].argmax()))
