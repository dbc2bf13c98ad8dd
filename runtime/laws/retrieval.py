"""Law `retrieval`: the target's probabilities p and those k of what its neighbours went on with.

l p + (1 - l) k, where l = sigmoid((r - a) / s) falls with how much nearer the nearest neighbour is
than the farthest (relative retrieval confidence). Logits of a store are log k - (r - a) / s, so
that their exponentials sum to (1 - l) / l and each place has a confidence of its own: p plus these
exponentials is the mixture, times 1 / l.

Source: Li et al. 2024, NEST, arXiv 2405.19325, confidence-based interpolation.
"""

from __future__ import annotations

from torch import Tensor


def combine(logits: Tensor, shares: Tensor | None = None) -> Tensor:
    """Logits `[..., V]` of the mixture; the first are the target's, the second a store's."""
    return (logits[0].softmax(-1) + logits[1].exp()).log()
