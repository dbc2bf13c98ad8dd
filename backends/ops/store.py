"""`store`: a tree or a number becomes what a state holds."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from specplan.backends.ops.tensors.trees import as_given, closed_up, padded_to, with_own_probs
from specplan.backends.ops.tensors.values import Tree
from specplan.ir.ops import Store


def store(
    op: Store, value: Tree | Tensor, *, state: Tree | Tensor, keeps_probs: bool
) -> Tree | Tensor:
    """What the state holds from now on.

    Args:
        op: the op.
        value: what is stored.
        state: what the state held; a tree has room for as many nodes.
        keeps_probs: drawn nodes keep the probabilities that they were drawn from, and all nodes
            their scores.
    """
    if isinstance(value, Tensor) or isinstance(state, Tensor):
        return value
    if value.chain and not value.in_order:  # what is loaded has the shape that the state declares
        value = closed_up(value)
    value = padded_to(value, state.columns)
    if keeps_probs:
        return with_own_probs(value)
    score = None if value.own is None else value.own.new_zeros(()).expand_as(value.own)
    return replace(as_given(value), own=score, scores=score)
