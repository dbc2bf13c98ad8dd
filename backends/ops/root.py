"""`root`: the tree without drafted nodes."""

from __future__ import annotations

from specplan.backends.ops.values import Tree
from specplan.ir.ops import Root


def root(op: Root, *, root: Tree) -> Tree:
    """The tree that whoever runs the op makes of its texts."""
    return root
