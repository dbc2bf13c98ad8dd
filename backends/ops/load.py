"""`load`: the tree or number that a state holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import rehung
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.ops import Load
from specplan.ir.types.value_types import TreeType


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


def stored_tree(kind: TreeType, tokens: Tensor, live: Tensor, **fields: Any) -> Tree:
    """A tree as a state of this type holds it; keys and depths follow when it is loaded.

    Args:
        kind: whose parents it has, unless these are among the fields.
        tokens: `[B, 1 + N]`, those of the root arbitrary.
        live: of the same shape.
        fields: others of `Tree`.
    """
    above = range(-1, kind.nodes - 1) if kind.parents is None else kind.parents
    parents = torch.tensor([0, *(node + 1 for node in above)], device=tokens.device)
    zero = torch.zeros_like(tokens)
    fields = {"parents": parents.expand_as(tokens), "probs_row": zero - 1, **fields}
    return Tree(
        tokens=tokens,
        depths=zero,
        live=live,
        keys=zero,
        levels=kind.depth,
        newest=range(1, 1 + kind.nodes) if kind.nodes else range(1),
        widest=1 if kind.is_chain else kind.nodes,
        chain=kind.is_chain,
        in_order=kind.is_chain,
        **fields,
    )
