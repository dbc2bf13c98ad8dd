"""`prune`: the nodes that were chosen, and their ancestors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from specplan.backends.ops.tensors.trees import first_columns, selected
from specplan.backends.ops.tensors.values import Nodes, Tree, nodes_of
from specplan.ir.ops import Prune
from specplan.ir.types.value_types import NodesType, TreeType, Type
from specplan.ir.values import Value
from specplan.runtime.masks import marked


def prune(
    op: Prune, tree: Tree, to: Tree | Nodes, *, kind: TreeType, reads: Mapping[Value, Type]
) -> Tree:
    """The nodes `to` and their ancestors, renumbered in the tree's order.

    Args:
        op: the op.
        tree: what is cut.
        to: what stays.
        kind: what the verifier knows of the result.
        reads: and of the operands.
    """
    to, chosen = nodes_of(to), reads[op.to]
    width = min(kind.nodes, tree.size)
    everything = (range(tree.columns), range(1, tree.columns))
    if isinstance(to.at, range) and to.chosen is None and to.at in everything:
        return replace(tree, newest=range(1, tree.columns) if tree.size else range(1))
    if isinstance(chosen, NodesType) and chosen.closed and isinstance(to.at, torch.Tensor):
        order, live = to.at, to.live
    else:
        lines = tree.lines(to.columns)
        live = to.live[:, :, None].expand_as(lines).flatten(1)
        stays = marked(lines.flatten(1), live, tree.columns)
        order, live = first_columns(stays[:, 1:], width)
        order = order + 1
    pruned = selected(tree, order, live, levels=min(tree.levels, max(width, 0)))
    in_order = tree.in_order and tree.chain
    return replace(pruned, in_order=in_order, chain=kind.is_chain, layered=tree.layered)
