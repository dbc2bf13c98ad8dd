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

from specplan.runtime.acceptance._walks import deepest, deepest_reference, of_nodes, ranks
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "logits"
"""What `target` holds."""


def accept(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor | None = None,
    *,
    top: int = 10,
    delta: float = 0.6,
) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: logits `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: unused.
        top: how many first choices may pass.
        delta: how much less probable than the first choice what passes may be.
    """
    probs = target.double().softmax(-1)
    own = of_nodes(tree, probs)
    least = probs.amax(-1).gather(1, tree.parent_tensor() + 1) - delta
    passed = (ranks(tree, target) < top) & (own >= least)
    return deepest(tree, passed, own.log(), target.argmax(-1))


accept_vectorised = accept


def accept_reference(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor | None = None,
    *,
    top: int = 10,
    delta: float = 0.6,
) -> Judged:
    """`accept`, node by node."""
    every = target.double().softmax(-1)

    def passes(row: int, parent: int, token: int) -> bool:
        ranked = target[row, parent + 1].sort(descending=True, stable=True).indices[:top]
        probs = every[row, parent + 1]
        return token in ranked.tolist() and bool(probs[token] >= probs.max() - delta)

    def score(row: int, parent: int, token: int) -> float:
        return float(every[row, parent + 1, token].log())

    return deepest_reference(tree, passes, score, target.argmax(-1))
