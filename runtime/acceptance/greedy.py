"""Rule `greedy`: a node is accepted when its token is the target's first choice.

Lossless at temperature 0. Source: Leviathan et al. 2022, arXiv 2211.17192, with one-hot laws.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance.tree import DraftedTree, Judged, judged_of

TARGET = "logits"
"""What `target` holds; laws serve as well, they have the same first choice."""

_HOST_NODES = 512
"""Up to this many nodes on the CPU, a walk on the host beats tensor ops."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: unused.

    Returns:
        The longest path of first choices; among siblings with one token, the earliest.
    """
    if target.device.type == "cpu" and tree.tokens.numel() <= _HOST_NODES:
        return accept_reference(tree, target)
    return accept_vectorised(tree, target)


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None) -> Judged:
    """`accept` as a walk down the tree, row by row."""
    choices = target.argmax(-1).tolist()
    tokens = tree.tokens.tolist()
    live = None if tree.live is None else tree.live.tolist()
    paths, bonuses = [], []
    for row, parents in enumerate(tree.parent_lists()):
        path: list[int] = []
        here = -1
        # Parents precede children, so one pass over the nodes walks the whole path.
        for node, parent in enumerate(parents):
            if parent == here and tokens[row][node] == choices[row][here + 1]:
                if live is not None and not live[row][node]:
                    continue
                path.append(node)
                here = node
        paths.append(path)
        bonuses.append(choices[row][here + 1])
    return judged_of(paths, bonuses, tree.depth, tree.tokens)


def accept_vectorised(tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None) -> Judged:
    """`accept` in tensor ops, a loop over depth and never over the batch."""
    choices = target.argmax(-1)
    parents, live = tree.parent_tensor(), tree.live_mask()
    here = torch.full_like(choices[:, :1], -1)
    steps = []
    accepted = torch.zeros_like(choices[:, 0])
    going = torch.ones_like(here, dtype=torch.bool)
    for _ in range(tree.depth):
        wanted = choices.gather(1, here + 1)
        hit = (parents == here) & live & (tree.tokens == wanted) & going
        going = hit.any(1, keepdim=True)
        found = hit.to(torch.uint8).argmax(1, keepdim=True)
        here = torch.where(going, found, here)
        steps.append(torch.where(going, found, -1))
        accepted = accepted + going[:, 0]
    path = torch.cat([tree.tokens[:, :0], *steps], 1)
    return Judged(path=path, accepted=accepted, bonus=choices.gather(1, here + 1)[:, 0])
