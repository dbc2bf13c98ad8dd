"""`reroot`: what is left of a tree below the text as it stands now."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.reshaping import first_columns, selected
from specplan.backends.ops.values import Tree
from specplan.ir.types import TreeType
from specplan.runtime.masks import first_true


def reroot(tree: Tree, roots: Tensor, tokens: Tensor, *, kind: TreeType) -> Tree:
    """The nodes below the one whose path is the text: none where the text says something else.

    Args:
        tree: grown before the text went on.
        roots: keys of the texts, int64 `[B, 1]`.
        tokens: the last of each text, int64 `[B, 1]`.
        kind: what the verifier knows of the result: how many nodes it has at most.
    """
    same = (tree.keys == roots) & tree.live
    root, there = first_true(same), same.any(1, keepdim=True)
    below = torch.zeros_like(same).scatter(1, root, there)
    top = below
    for _ in range(tree.levels):
        below = below | below.gather(1, tree.parents)
    width = min(kind.nodes, tree.size)
    order = tree.depths if tree.chain else None
    columns, live = first_columns(below & ~top & tree.live, width, order)
    left = selected(tree, columns, live, root=root, levels=min(tree.levels, width))
    in_order = tree.chain
    parents = left.parents
    if in_order:
        steps = torch.arange(left.columns, device=tokens.device).expand_as(parents)
        left = replace(left, parents=(steps - 1).clamp(min=0), depths=steps)
    return replace(
        left,
        tokens=torch.cat([tokens, left.tokens[:, 1:]], 1),
        keys=torch.cat([roots, left.keys[:, 1:]], 1),
        law_row=torch.cat([torch.full_like(root, -1), left.law_row[:, 1:]], 1),
        levels=width if in_order else left.levels,
        chain=kind.is_chain,
        in_order=in_order,
    )
