"""Rules that judge a chain by a law made of the target's and the draft's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specplan.runtime.acceptance import token
from specplan.runtime.acceptance.tree import DraftedTree, Judged

Mixture = Callable[[Tensor, Tensor], Tensor]
"""From laws p and q `[..., V]` to the law `[..., V]` to be emitted."""


def judge(tree: DraftedTree, target: Tensor, uniforms: Tensor, mixture: Mixture) -> Judged:
    """The rule `token` with the mixture in place of the target's law.

    Where the draft's law is not known, after the last node and where a node is a point, the
    target's own law stands.
    """
    if tree.size == 0 or tree.laws is None:
        return token.accept(tree, target, uniforms)
    mixed = mixture(target[:, :-1], tree.node_laws(target))
    drawn = (tree.law_tensor() >= 0)[:, :, None]
    mixed = torch.where(drawn, mixed, target[:, :-1])
    return token.accept(tree, torch.cat([mixed, target[:, -1:]], 1), uniforms)


def judge_reference(
    tree: DraftedTree, target: Tensor, uniforms: Tensor, mixture: Mixture
) -> Judged:
    """`judge`, one law at a time."""
    mixed, law_rows = target.clone(), tree.law_lists()
    for row, indices in enumerate(law_rows):
        for node, index in enumerate(indices):
            if tree.laws is not None and index >= 0:
                proposal = tree.laws[row, index].to(target.dtype)
                mixed[row, node] = mixture(target[row, node], proposal)
    return token.accept_reference(tree, mixed, uniforms)
