"""Rule `typical`: a node passes when the target finds its token typical.

x passes where p(x) > min(epsilon, delta exp(-H)), H = -sum p ln(p + 1e-5); the longest path of
nodes that pass is kept, among equals the one of the highest product of p, and the bonus is the
target's first choice after it. Lossy at every temperature above 0: what passes is emitted with the
draft's probability, what does not is replaced by the first choice. At temperature 0 it is `greedy`.

Source: Cai et al. 2024, Medusa, arXiv 2401.10774, with the defaults of `medusa_generate` (some of
its helper functions have the two swapped). There the first token of a round is the first choice
too: here it is the bonus of the round before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance._walks import by_nodes, of_nodes
from specplan.runtime.acceptance.tree import DraftedTree

TARGET = "probabilities"
"""What `target` holds."""


def _passing(
    tree: DraftedTree, target: Tensor, *, epsilon: float = 0.09, delta: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Which nodes pass, bool `[B, N]`, and the logarithms of their probabilities.

    Args:
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        epsilon: a probability above it always passes.
        delta: factor of exp(-H).
    """
    mass = of_nodes(tree, target)
    least = threshold(target, epsilon, delta).gather(1, tree.parent_tensor() + 1)
    return mass > least, mass.log()


def threshold(probs: Tensor, epsilon: float, delta: float) -> Tensor:
    """What a probability must exceed, `[...]`, under probabilities `[..., V]`."""
    entropy = -(probs * (probs + 1e-5).log()).sum(-1)
    return (delta * (-entropy).exp()).clamp(max=epsilon)


def _passes(
    probs: Tensor, token: int, *, epsilon: float = 0.09, delta: float = 0.3
) -> tuple[bool, float]:
    """The same of one node."""
    entropy = -(probs * torch.log(probs + 1e-5)).sum()
    least = min(epsilon, delta * float(torch.exp(-entropy)))
    return bool(probs[token] > least), float(probs[token].log())


def passing_tokens(probs: Tensor, *, epsilon: float = 0.09, delta: float = 0.3) -> Tensor:
    """Which tokens pass under probabilities `[..., V]`, bool."""
    return probs > threshold(probs, epsilon, delta)[..., None]


accept, accept_vectorised, accept_reference = by_nodes(_passing, _passes)
"""See `specplan.runtime.acceptance`; no uniforms are read."""
