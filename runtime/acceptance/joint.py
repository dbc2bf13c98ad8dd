"""Rule `joint`: a path stands as a whole, by its joint probability.

With P the product of the target's probabilities along a path, and Q that of the probabilities that
its tokens were drawn from (1 for tokens that were not drawn), a path stands if P >= threshold * Q
and P > 0; its beginnings need not. The longest path that stands is kept, among equals the one of
the highest P, and the bonus is the target's first choice after it. Lossy: it aims at texts that are
likelier as a whole than token by token.

Source: Qin et al. 2024, Multi-token joint speculative decoding, arXiv 2407.09722.
"""

from __future__ import annotations

from math import inf, log

import torch
from torch import Tensor

from specplan.runtime.acceptance._walks import longest, of_nodes
from specplan.runtime.acceptance.tree import (
    DraftedTree,
    Judged,
    judged_of,
    judged_without_nodes,
)

TARGET = "probabilities"
"""What `target` holds."""
_LEAST = 1e-37
"""Least probability of a draw: runtimes that hold constants in float32 know it."""


def accept(
    tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None, *, threshold: float = 0.3
) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: not read.
        threshold: least share of the draft's joint probability.
    """
    choices = target.argmax(-1)
    if tree.size == 0:
        return judged_without_nodes(tree, choices[:, 0])
    above, live = tree.parent_tensor() + 1, tree.live_mask()
    own = of_nodes(tree, target).double().log()
    drawn = tree.node_probs(target).gather(2, tree.tokens[:, :, None])[:, :, 0]
    gain = own - drawn.double().clamp(min=_LEAST).log()
    root = torch.zeros_like(own[:, :1])
    alive, mass, ratio = live, own, gain
    for _ in range(tree.depth - 1):
        alive = live & torch.cat([root == 0, alive], 1).gather(1, above)
        mass = own + torch.cat([root, mass], 1).gather(1, above)
        ratio = gain + torch.cat([root, ratio], 1).gather(1, above)
    return longest(tree, alive & (ratio >= log(threshold)), mass, choices)


accept_vectorised = accept


def accept_reference(
    tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None, *, threshold: float = 0.3
) -> Judged:
    """`accept` path by path."""
    paths, bonuses = [], []
    live, tokens, drawn = tree.live_mask(), tree.tokens.tolist(), tree.node_probs(target)
    for row, parents in enumerate(tree.parent_lists()):
        known: dict[int, tuple[list[int], float, float]] = {-1: ([], 0.0, 0.0)}
        best: list[int] = []
        most = 0.0
        for node, parent in enumerate(parents):
            if parent not in known or not live[row, node]:
                continue
            (path, mass, ratio), token = known[parent], tokens[row][node]
            given = float(target[row, parent + 1, token])
            own = log(given) if given else -inf
            ratio += own - log(max(float(drawn[row, node, token]), _LEAST))
            known[node] = [*path, node], mass + own, ratio
            longer = (len(path) + 1, mass + own) > (len(best), most)
            if ratio >= log(threshold) and longer:
                best, most = known[node][:2]
        paths.append(best)
        bonuses.append(int(target[row, best[-1] + 1 if best else 0].argmax()))
    return judged_of(paths, bonuses, tree.depth, tree.tokens)
