"""`trim`: a tree without what lies deep in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specplan.backends.ops.tensors.values import Tree
from specplan.ir.types.value_types import TreeType


def trim(op: Any, tree: Tree, *, kind: TreeType) -> Tree:
    """Nodes of a greater depth than `op.depth` die.

    Args:
        op: the op.
        tree: what it reads.
        kind: what the verifier knows of the result.
    """
    return replace(tree, live=tree.live & (tree.depths <= op.depth))
