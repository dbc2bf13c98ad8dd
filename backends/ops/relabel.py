"""`relabel`: the same tree with new tokens, whose nodes are others than before."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import as_given, padded_to, rehung, summed
from specplan.backends.ops.tensors.values import Logits, Nodes, Tree, nodes_of
from specplan.ir.ops import Relabel
from specplan.runtime.masks import marked


def relabel(
    op: Relabel,
    tree: Tree,
    logits: Logits | None,
    other: Tree | None,
    at: Tree | Nodes | None,
) -> Tree:
    """New tokens; what they come from must be live.

    Args:
        op: whether rows are those of the parents or of the nodes themselves, which nodes of `other`
            give tokens to which, or the one token.
        tree: the shape.
        logits: the likeliest token of each.
        other: whose tokens are taken.
        at: which nodes get new tokens; all when None.
    """
    tokens, live = tree.tokens, tree.live
    own = None if tree.own is None else torch.zeros_like(tree.own)
    if logits is not None:
        nodes = tree.everything
        if op.align == "parent":
            nodes = Nodes(tree, tree.parents)
        vectors, known = logits.of(nodes)
        new = vectors.argmax(2)
        live = live & known
        if own is not None:
            own = vectors.amax(2) - vectors.logsumexp(2)
    elif other is not None:
        new, live = _of_another(op, other, tree.columns)
    else:
        new = torch.full_like(tokens, op.token or 0)
    chosen = torch.ones_like(tree.live)
    at = None if at is None else nodes_of(at)
    if at is not None:
        chosen = marked(at.columns, at.live, tree.columns)
    chosen = chosen & (torch.arange(tree.columns, device=chosen.device) > 0)
    left = as_given(tree)
    if at is not None:
        left = replace(tree, probs_row=tree.probs_row.masked_fill(chosen, -1))
    if own is not None and tree.own is not None:
        own = torch.where(chosen, own, tree.own)
    relabelled = replace(
        left,
        sure=tree.sure and (logits is None or logits.sure) and (other is None or other.sure),
        tokens=torch.where(chosen, new, tree.tokens),
        live=torch.where(chosen, live, tree.live),
        newest=range(1, tree.columns) if tree.size else range(1),
        layered=False,
        own=own,
        scores=own if own is None else summed(tree, own),
    )
    return rehung(relabelled)


def _of_another(op: Relabel, other: Tree, columns: int) -> tuple[Tensor, Tensor]:
    """Tokens that another tree's nodes give to so many columns, and which of them there are.

    Data may have left nodes out of either tree, the last ones.
    """
    mapped = [0, *(node + 1 for node in op.map)][:columns] if op.map else range(columns)
    other = padded_to(other, 1 + max(mapped))
    places = torch.tensor(list(mapped), device=other.tokens.device)
    return other.tokens.index_select(1, places), other.live.index_select(1, places)
