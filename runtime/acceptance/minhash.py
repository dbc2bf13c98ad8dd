"""Rule `minhash`: target and draft sample by one weighted MinHash, and what agrees is accepted.

As rule `gumbel`, with the other coupling of its paper: what follows a node is drawn from the
target's distribution by consistent weighted sampling (`specplan.runtime.races`), number d for what
follows nodes at depth d. The target's tokens depend on the numbers alone and never on the draft.
Where the draft took its children so from its own distribution, a single child is accepted with
(1 - TV) / (1 + TV) at least.

In a plan, `grow how=minhash` draws the children over the numbers that `accept` reads.

Sources: Daliri, Musco, Suresh 2024, Coupling without Communication and Drafter-Invariant
Speculative Decoding, arXiv 2408.07978; Ioffe 2010, Improved Consistent Sampling, Weighted Minhash
and L1 Sketching, ICDM.
"""

from __future__ import annotations

from torch import Tensor

from specplan.runtime.acceptance._walks import (
    follow,
    follow_reference,
    follow_vectorised,
    node_depths,
)
from specplan.runtime.acceptance.tree import DraftedTree, Judged
from specplan.runtime.races import consistent, steps

TARGET = "probabilities"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number d draws what follows nodes at depth d.
    """
    return follow(tree, _choices(tree, target, uniforms))


def accept_vectorised(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` in tensor ops."""
    return follow_vectorised(tree, _choices(tree, target, uniforms))


def _choices(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Tensor:
    """What the target draws after the root and after every node, `[B, N + 1]`."""
    noise = steps(uniforms[:, : tree.depth + 1], target.shape[2])
    places = node_depths(tree)[:, :, None, None].expand(-1, -1, *noise.shape[2:])
    return consistent(target, noise.gather(1, places))[:, :, 0]


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept`, drawing at the nodes that are reached only."""
    depths = node_depths(tree).tolist()

    def choice(row: int, node: int) -> int:
        number = uniforms[row, depths[row][node + 1]]
        return int(consistent(target[row, node + 1], steps(number, target.shape[2])))

    return follow_reference(tree, choice)
