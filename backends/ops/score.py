"""`score`: the same tree with other scores."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import summed
from specplan.backends.ops.tensors.values import Logits, Nodes, Tree
from specplan.ir.ops import Score


def score(op: Score, tree: Tree, logits: Logits | None, factor: Tensor | None) -> Tree:
    """Scores by other logits, or times a number.

    Args:
        op: the op.
        tree: has scores.
        logits: of the parents; tokens of nodes whose parent has none keep their scores.
        factor: numbers `[B]`, by which the probability of every path is multiplied.
    """
    own = tree.own
    assert own is not None, "what reads scores is known before a round runs"
    drafted = torch.arange(tree.columns, device=own.device) > 0
    if logits is not None:
        vectors, there = logits.ahead(Nodes(tree, tree.parents))
        given = vectors.gather(2, tree.tokens[:, :, None])[:, :, 0] - vectors.logsumexp(2)
        own = torch.where(there & tree.live & drafted, given.to(own), own)
    if factor is not None:
        first = (tree.parents == 0) & drafted
        own = own + first * factor.to(own).clamp(min=1e-300).log()[:, None]
    return replace(tree, own=own, scores=summed(tree, own))
