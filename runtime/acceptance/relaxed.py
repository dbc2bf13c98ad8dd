"""Rule `relaxed`: a node passes when it is among the first choices, and not much less probable.

x passes where it is one of the `top` most probable tokens and p(x) >= max p - delta; the longest
path of nodes that pass is kept, among equals the one of the highest product of p, and the bonus is
the target's first choice after it. Probabilities are those of the logits as they are, at
temperature 1. Lossy: whatever the draft says is emitted where it passes. With top = 1 or delta = 0
(and no ties) it is `greedy`. `top_beta` asks for a ratio of probabilities where this rule asks for
a difference: of a sure target it lets less pass, of an unsure one more.

Source: relaxed acceptance of TensorRT-LLM for the thinking phase of reasoning models (technical
blog 2, "DeepSeek R1 MTP Implementation and Optimization", 2025), with the values it recommends.
"""

from __future__ import annotations

from torch import Tensor

from specplan.runtime.acceptance._walks import by_nodes, of_nodes, ranks, token_ranks
from specplan.runtime.acceptance.tree import DraftedTree

TARGET = "logits"
"""What `target` holds."""


def _passing(
    tree: DraftedTree, target: Tensor, *, top: int = 10, delta: float = 0.6
) -> tuple[Tensor, Tensor]:
    """Which nodes pass, bool `[B, N]`, and the logarithms of their probabilities.

    Args:
        tree: the drafted nodes.
        target: logits `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        top: how many first choices may pass.
        delta: how much less probable than the first choice what passes may be.
    """
    probs = target.double().softmax(-1)
    own = of_nodes(tree, probs)
    least = probs.amax(-1).gather(1, tree.parent_tensor() + 1) - delta
    return (ranks(tree, target) < top) & (own >= least), own.log()


def _passes(logits: Tensor, token: int, *, top: int = 10, delta: float = 0.6) -> tuple[bool, float]:
    """The same of one node."""
    ranked = logits.sort(descending=True, stable=True).indices[:top].tolist()
    probs = logits.double().softmax(-1)
    passed = token in ranked and bool(probs[token] >= probs.max() - delta)
    return passed, float(probs[token].log())


def passing_tokens(logits: Tensor, *, top: int = 10, delta: float = 0.6) -> Tensor:
    """Which tokens pass under logits `[..., V]`, bool."""
    probs = logits.double().softmax(-1)
    return (token_ranks(logits) < top) & (probs >= probs.amax(-1, keepdim=True) - delta)


accept, accept_vectorised, accept_reference = by_nodes(_passing, _passes)
"""See `specplan.runtime.acceptance`; no uniforms are read."""
