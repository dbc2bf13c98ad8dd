"""Rule `naive`: the target draws, and a child is accepted when it is what was drawn.

At each node y is drawn from the target's distribution; where a live child holds y the walk goes on
there (among equal siblings the earliest), else y is the bonus. One of the children of a node is
accepted with the sum of p over their tokens: with probability sum p (1 - (1 - q)^k) for k
independent draws from q. Lossless at every temperature, for any tree that did not look at these
uniforms, and reads no distributions of the draft; for a single drawn child it accepts less than
`token`, sum p q <= sum min(p, q). The emitted distribution given the tree is that of
`deterministic`; this form spends one number per node that is reached, not per child.

Source: MCSD, arXiv 2401.06706, "naive sampling" (its baseline, and that of SpecInfer, arXiv
2305.09781).
"""

from __future__ import annotations

from torch import Tensor

from specplan.runtime.acceptance._walks import follow, follow_reference, follow_vectorised
from specplan.runtime.acceptance.tree import DraftedTree, Judged
from specplan.runtime.sampling import draw

TARGET = "probabilities"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number 0 draws what follows the root, number i + 1 what follows
            node i.
    """
    return follow(tree, draw(target, uniforms))


def accept_vectorised(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` in tensor ops."""
    return follow_vectorised(tree, draw(target, uniforms))


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept`, drawing at the nodes that are reached only."""
    return follow_reference(
        tree, lambda row, node: int(draw(target[row, node + 1], uniforms[row, node + 1]))
    )
