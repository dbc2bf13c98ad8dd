"""`score`: the same tree with other scores."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.reshaping import summed
from specplan.backends.ops.values import Nodes, Rows, Tree


def score(tree: Tree, rows: Rows | None, factor: Tensor | None) -> Tree:
    """Scores by other logits, or times a number.

    Args:
        tree: has scores.
        rows: logits of the parents; tokens of nodes whose parent has none keep their scores.
        factor: numbers `[B]`, by which the probability of every path is multiplied.
    """
    own = tree.own
    assert own is not None, "what reads scores is known before a round runs"
    if rows is not None:
        logits, there = rows.of(Nodes(tree, tree.parents))
        said = logits.gather(2, tree.tokens[:, :, None])[:, :, 0] - logits.logsumexp(2)
        own = torch.where(there & tree.live, said.to(own), own)
    if factor is not None:
        columns = torch.arange(tree.columns, device=own.device)
        first = (tree.parents == 0) & (columns > 0)
        own = own + first * factor.to(own).clamp(min=1e-300).log()[:, None]
    return replace(tree, own=own, scores=summed(tree, own))
