"""`load`: the tree or number that a state holds."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import rehung
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.ops import Load


def load(op: Load, *, state: Tree | Tensor, root: Tree) -> Tree | Tensor:
    """What was stored; a tree hangs below the text as it is now.

    Args:
        op: the op.
        state: what the state holds.
        root: the tree without drafted nodes.
    """
    if isinstance(state, Tensor):
        return state
    tokens = torch.cat([root.tokens, state.tokens[:, 1:]], 1)
    return rehung(replace(state, tokens=tokens), root.keys)
