"""`relabel`: the same tree with new tokens, whose nodes are others than before."""

from __future__ import annotations

from dataclasses import replace

import torch

from specplan.backends.ops.reshaping import as_given, rehung, summed
from specplan.backends.ops.values import Nodes, Rows, Tree
from specplan.ir.ops import Relabel


def relabel(
    op: Relabel, tree: Tree, rows: Rows | None, other: Tree | None, at: Nodes | None
) -> Tree:
    """New tokens; what they come from must be live.

    Args:
        op: whether rows are those of the parents or of the nodes themselves, which nodes of `other`
            give tokens to which, or the one token.
        tree: the shape.
        rows: the likeliest token of each.
        other: whose tokens are taken.
        at: which nodes get new tokens; all when None.
    """
    tokens, live = tree.tokens, tree.live
    own = None if tree.own is None else torch.zeros_like(tree.own)
    if rows is not None:
        nodes = tree.everything
        if op.align == "parent":
            nodes = Nodes(tree, tree.parents)
        logits, known = rows.of(nodes)
        new = logits.argmax(2)
        live = live & known
        if own is not None:
            own = logits.amax(2) - logits.logsumexp(2)
    elif other is not None:
        mapped = [0, *(node + 1 for node in op.map)] if op.map else range(tree.columns)
        places = torch.tensor(list(mapped), device=tokens.device)
        new, live = other.tokens.index_select(1, places), other.live.index_select(1, places)
    else:
        new = torch.full_like(tokens, op.token or 0)
    chosen = torch.ones_like(tree.live)
    if at is not None:
        chosen = torch.zeros_like(tree.live).scatter_reduce(1, at.columns, at.live, "amax")
    root = torch.zeros_like(chosen)
    root[:, 0] = True
    chosen = chosen & ~root
    left = as_given(tree)
    if at is not None:
        left = replace(tree, law_row=tree.law_row.masked_fill(chosen, -1))
    if own is not None and tree.own is not None:
        own = torch.where(chosen, own, tree.own)
    relabelled = replace(
        left,
        tokens=torch.where(chosen, new, tree.tokens),
        live=torch.where(chosen, live, tree.live),
        newest=range(1, tree.columns) if tree.size else range(1),
        own=own,
        scores=own if own is None else summed(tree, own),
    )
    return rehung(relabelled)
