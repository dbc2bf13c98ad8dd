"""Rule `span`: a prefix of a span of text stands by how probable its tokens are beside the best.

x is accepted with probability a = min(1, p(x) / (g max p)), 0 < g; at the first rejection, and
behind the last token, one is drawn from p. Lossy: what follows a place where x is drafted has the
distribution a at x plus (1 - a) p, which is a (1 - p(x)) from p in total variation. Its purpose is
text of a source where that is not much less probable. At temperature 0 the distributions are those
of first choices, and it is `greedy`; `top_beta` of a whole vocabulary judges logits alike.

Source: Li et al. 2024, NEST, arXiv 2405.19325, relaxed speculative decoding. Its released code
(generation.py at 0f4fe5c) puts 1/2 for the uniform.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance.tree import DraftedTree, Judged, judged_of, judged_without_nodes
from specplan.runtime.masks import prefix
from specplan.runtime.sampling import draw

TARGET = "probabilities"
"""What `target` holds."""


def accept(
    tree: DraftedTree, target: Tensor, uniforms: Tensor, *, strictness: float = 0.5
) -> Judged:
    """Judge a chain.

    Args:
        tree: node i's parent is node i - 1.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
        strictness: g.
    """
    if tree.size == 0:
        return judged_without_nodes(tree, draw(target[:, 0], uniforms[:, -1]))
    rows = target[:, :-1]
    mass = rows.gather(2, tree.tokens[:, :, None])[:, :, 0]
    won = uniforms[:, :-1] * strictness * rows.amax(-1) < mass
    stands = prefix(won & tree.live_mask())
    accepted = stands.sum(1)
    last = target.gather(1, accepted[:, None, None].expand(-1, -1, target.shape[2]))[:, 0]
    nodes = torch.arange(tree.size, device=stands.device)
    bonus = draw(last, uniforms[:, -1])
    return Judged(path=nodes.where(stands, -1), accepted=accepted, bonus=bonus)


accept_vectorised = accept


def accept_reference(
    tree: DraftedTree, target: Tensor, uniforms: Tensor, *, strictness: float = 0.5
) -> Judged:
    """`accept`, one token at a time."""
    paths, bonuses, live = [], [], tree.live_mask()
    for row in range(tree.tokens.shape[0]):
        path: list[int] = []
        for node in range(tree.size):
            probs = target[row, node]
            least = uniforms[row, node] * strictness * probs.max()
            if not live[row, node] or not least < probs[tree.tokens[row, node]]:
                break
            path.append(node)
        paths.append(path)
        bonuses.append(int(draw(target[row, len(path)], uniforms[row, -1])))
    return judged_of(paths, bonuses, tree.size, tree.tokens)
