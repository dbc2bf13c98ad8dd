"""`reroot`: what is left of a tree below the text as it stands now."""

from __future__ import annotations

from dataclasses import replace

import torch

from specplan.backends.ops.tensors.trees import at_or_below, first_columns, selected
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.ops import Reroot
from specplan.ir.types.value_types import TreeType
from specplan.runtime.masks import first_true


def reroot(op: Reroot, tree: Tree, *, kind: TreeType, root: Tree) -> Tree:
    """The nodes below the one whose path is the text: none where the text says something else.

    Args:
        op: the op.
        tree: grown before the text went on.
        kind: what the verifier knows of the result: how many nodes it has at most.
        root: the tree without drafted nodes, of the texts as they are now.
    """
    same = (tree.keys == root.keys) & tree.live
    here, there = first_true(same), same.any(1, keepdim=True)
    if tree.chain and tree.in_order:
        below = there & (torch.arange(tree.columns, device=here.device) > here)
    else:
        top = torch.zeros_like(same).scatter(1, here, there)
        below = at_or_below(tree, top) & ~top
    width = min(kind.nodes, tree.size)
    order = tree.depths if tree.chain else None
    columns, live = first_columns(below & tree.live, width, order)
    left = selected(tree, columns, live, root=here, levels=min(tree.levels, width))
    in_order = tree.chain
    parents = left.parents
    if in_order:
        steps = torch.arange(left.columns, device=here.device).expand_as(parents)
        left = replace(left, parents=(steps - 1).clamp(min=0), depths=steps)
    return replace(
        left,
        tokens=torch.cat([root.tokens, left.tokens[:, 1:]], 1),
        keys=torch.cat([root.keys, left.keys[:, 1:]], 1),
        probs_row=torch.cat([torch.full_like(here, -1), left.probs_row[:, 1:]], 1),
        levels=width if in_order else left.levels,
        chain=kind.is_chain,
        in_order=in_order,
    )
