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

from torch import Tensor

from specplan.runtime.acceptance._walks import deepest, deepest_reference, of_nodes
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "logits"
"""What `target` holds."""


def accept(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor | None = None,
    *,
    threshold: float = 5.0,
) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: logits `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: unused.
        threshold: largest -ln p that stands, nats.
    """
    above = tree.parent_tensor() + 1
    choices = target.argmax(-1)
    score = of_nodes(tree, target) - target.logsumexp(-1).gather(1, above)
    passed = (-score <= threshold) | (choices.gather(1, above) == tree.tokens)
    return deepest(tree, passed, score, choices)


accept_vectorised = accept


def accept_reference(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor | None = None,
    *,
    threshold: float = 5.0,
) -> Judged:
    """`accept`, node by node."""

    def score(row: int, parent: int, token: int) -> float:
        logits = target[row, parent + 1]
        return float(logits[token] - logits.logsumexp(-1))

    def passes(row: int, parent: int, token: int) -> bool:
        first = int(target[row, parent + 1].argmax())
        return -score(row, parent, token) <= threshold or token == first

    return deepest_reference(tree, passes, score, target.argmax(-1))
