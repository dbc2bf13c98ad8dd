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

from specplan.runtime.acceptance._races import raced, raced_at
from specplan.runtime.acceptance._walks import follow, follow_reference, follow_vectorised
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "probabilities"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number d draws what follows nodes at depth d.
    """
    return follow(tree, raced("minhash", tree, target, uniforms))


def accept_vectorised(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` in tensor ops."""
    return follow_vectorised(tree, raced("minhash", tree, target, uniforms))


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept`, drawing at the nodes that are reached only."""
    return follow_reference(tree, raced_at("minhash", tree, target, uniforms))
