"""`place`: constant tokens below nodes."""

from __future__ import annotations

from dataclasses import replace

import torch

from specplan.backends.ops.tensors.trees import (
    chains_below,
    closed_up,
    padded_to,
    rehung,
    summed,
)
from specplan.backends.ops.tensors.values import Nodes, Tree, nodes_of
from specplan.ir.ops import Place
from specplan.ir.types.value_types import TreeType


def place(op: Place, tree: Tree, at: Tree | Nodes, *, kind: TreeType) -> Tree:
    """A chain of constant tokens below each node, or below a chain's end up to a depth.

    Args:
        op: the tokens, and up to which depth.
        tree: what grows.
        at: below which.
        kind: what the verifier knows of the result.
    """
    at, chain = nodes_of(at), kind.is_chain
    if op.upto is not None:
        return _filled(op.tokens, tree, at, op.upto)
    alive = at.live_in(tree)
    tokens = torch.tensor(op.tokens, device=alive.device).expand(*alive.shape, -1)
    live = alive[:, :, None].expand_as(tokens)
    return chains_below(tree, at, tokens, live, alive, (1,) * at.width, chain)


def _filled(tokens: tuple[int, ...], tree: Tree, at: Nodes, upto: int) -> Tree:
    """A chain filled up below its end with tokens in turn, so that it is `upto` nodes deep."""
    tree = padded_to(closed_up(tree), 1 + upto)
    device = tree.tokens.device
    place = torch.arange(tree.columns, device=device)
    end = at.take(at.tree.depths)
    past = place - 1 - end
    constant = torch.tensor(tokens, device=device)[past.clamp(min=0) % len(tokens)]
    new = (past >= 0) & (place <= upto)
    filled = replace(
        tree,
        tokens=torch.where(new, constant, tree.tokens),
        parents=(place - 1).clamp(min=0).expand_as(tree.tokens),
        live=tree.live | new,
        levels=max(upto, tree.levels),
        widest=1,
        tips=range(0),
        newest=range(1, tree.columns),
        probs_row=tree.probs_row.masked_fill(new, -1),
        chain=True,
        layered=False,
        in_order=True,
    )
    if tree.own is not None:
        own = tree.own.masked_fill(new, 0.0)
        filled = replace(filled, own=own, scores=summed(filled, own))
    return rehung(filled)
