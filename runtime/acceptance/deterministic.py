"""Rule `deterministic`: children are taken as given, whatever they were drawn from.

At each node the residual R starts as the target's distribution. A child x is accepted with
probability R(x), else x is removed from R; when no child is left, the bonus is drawn from R. This
is `recursive` with q = 1 at each child: the distributions that tokens were drawn from are not read,
so none need be kept, and drawn nodes may have been dropped by a choice that looked at them. One of
the children of a node is accepted with the sum of p over their tokens. Lossless at every
temperature, for any tree that did not look at these uniforms; for drawn children it accepts less
than `recursive`. (With q = the draft's distribution in place of 1 for children that were not drawn
from it, the distribution is lost: the released code of Draft & Verify, arXiv 2309.08168, does so
when it drafts greedily and samples.)

Source: Li et al. 2024, EAGLE, arXiv 2401.15077, and EAGLE-2, arXiv 2406.16858.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from specplan.runtime.acceptance import recursive
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "probabilities"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
    """
    return recursive.accept(_given(tree), target, uniforms)


def accept_vectorised(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` in tensor ops."""
    return recursive.accept_vectorised(_given(tree), target, uniforms)


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept`, one child at a time."""
    return recursive.accept_reference(_given(tree), target, uniforms)


def _given(tree: DraftedTree) -> DraftedTree:
    return replace(tree, probs=None, probs_index=None)
