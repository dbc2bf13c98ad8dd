"""Rule `top_beta`: a node passes when it is among the target's first choices, and not far behind.

x passes where it is one of the `beta` most probable tokens and ln max p - ln p(x) <= tolerance; the
longest path of nodes that pass is kept, among equals the one of the highest product of p, and the
bonus is the target's first choice after it. Probabilities are those of the logits as they are, at
temperature 1. Lossy: whatever the draft says is emitted where it passes. With beta = 1 or tolerance
0 (and no ties) it is `greedy`; with the whole vocabulary it is Leviathan's lenience for first
choices, p(x) >= l max p, l = exp(-tolerance).

Source: Xia et al. 2022, SpecDec, arXiv 2203.16487, and its released code (defaults).
"""

from __future__ import annotations

from torch import Tensor

from specplan.runtime.acceptance._walks import by_nodes, of_nodes, ranks, token_ranks
from specplan.runtime.acceptance.tree import DraftedTree

TARGET = "logits"
"""What `target` holds."""


def _passing(
    tree: DraftedTree, target: Tensor, *, beta: int = 5, tolerance: float = 3.0
) -> tuple[Tensor, Tensor]:
    """Which nodes pass, bool `[B, N]`, and the logarithms of their probabilities.

    Args:
        tree: the drafted nodes.
        target: logits `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        beta: how many first choices may pass.
        tolerance: largest difference of log-probabilities to the first choice, nats.
    """
    above = tree.parent_tensor() + 1
    own = of_nodes(tree, target)
    passed = (ranks(tree, target) < beta) & (target.amax(-1).gather(1, above) - own <= tolerance)
    return passed, own - target.logsumexp(-1).gather(1, above)


def _passes(
    logits: Tensor, token: int, *, beta: int = 5, tolerance: float = 3.0
) -> tuple[bool, float]:
    """The same of one node."""
    ranked = logits.sort(descending=True, stable=True).indices[:beta].tolist()
    passed = token in ranked and bool(logits.max() - logits[token] <= tolerance)
    return passed, float(logits[token] - logits.logsumexp(-1))


def passing_tokens(logits: Tensor, *, beta: int = 5, tolerance: float = 3.0) -> Tensor:
    """Which tokens pass under logits `[..., V]`, bool."""
    near = logits.amax(-1, keepdim=True) - logits <= tolerance
    return (token_ranks(logits) < beta) & near


accept, accept_vectorised, accept_reference = by_nodes(_passing, _passes)
"""See `specplan.runtime.acceptance`; no uniforms are read."""
