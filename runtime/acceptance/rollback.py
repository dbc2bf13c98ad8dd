"""Rule `rollback`: what the draft wrote stands until the target finds it too unlikely.

x passes where -ln p(x) <= threshold or x is the target's first choice; the longest path of nodes
that pass is kept, among equals the one of the highest product of p, and the bonus is the target's
first choice after it. Probabilities are those of the logits as they are, at temperature 1. Lossy:
whatever the draft says is emitted where it passes.

This is the rollback policy of the Big Little Decoder. Its fallback policy, which ends the draft
where the small model's highest probability falls below 0.6, is drafting: `measure top1` on the
draft's rows and `yield ... until=`.

Source: Kim et al. 2023, BiLD, arXiv 2302.07863, with the default of its released code (2 to 5 are
usual).
"""

from __future__ import annotations

from torch import Tensor, arange

from specplan.runtime.acceptance._walks import by_nodes, of_nodes
from specplan.runtime.acceptance.tree import DraftedTree

TARGET = "logits"
"""What `target` holds."""


def _passing(tree: DraftedTree, target: Tensor, *, threshold: float = 5.0) -> tuple[Tensor, Tensor]:
    """Which nodes pass, bool `[B, N]`, and the logarithms of their probabilities.

    Args:
        tree: the drafted nodes.
        target: logits `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        threshold: largest -ln p that stands, nats.
    """
    above = tree.parent_tensor() + 1
    score = of_nodes(tree, target) - target.logsumexp(-1).gather(1, above)
    first = target.argmax(-1).gather(1, above)
    return (-score <= threshold) | (first == tree.tokens), score


def _passes(logits: Tensor, token: int, *, threshold: float = 5.0) -> tuple[bool, float]:
    """The same of one node."""
    score = float(logits[token] - logits.logsumexp(-1))
    return -score <= threshold or token == int(logits.argmax()), score


def passing_tokens(logits: Tensor, *, threshold: float = 5.0) -> Tensor:
    """Which tokens pass under logits `[..., V]`, bool."""
    tokens = arange(logits.shape[-1], device=logits.device)
    first = tokens == logits.argmax(-1, keepdim=True)
    return (logits.logsumexp(-1, keepdim=True) - logits <= threshold) | first


accept, accept_vectorised, accept_reference = by_nodes(_passing, _passes)
"""See `specplan.runtime.acceptance`; no uniforms are read."""
