"""Rule `token`: speculative sampling on a chain.

Accept x drawn from q with probability min(1, p(x) / q(x)); at the first rejection draw from norm((p
- q)+); when all are accepted draw one more from p. A point distribution is q = 1 at x: accept with
probability p(x), reject to p without x. Lossless at every temperature.
Source: Leviathan et al. 2022, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance.tree import DraftedTree, Judged, judged_of, judged_without_nodes
from specplan.runtime.masks import prefix
from specplan.runtime.sampling import draw

TARGET = "probabilities"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a chain.

    Args:
        tree: node i's parent is node i - 1.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
    """
    return judge_chain(tree, target, uniforms, 1.0)


accept_vectorised = accept


def judge_chain(tree: DraftedTree, target: Tensor, uniforms: Tensor, lenience: float) -> Judged:
    """`accept`, with every q(x) times `lenience` where it is compared with p(x)."""
    if tree.size == 0:
        return judged_without_nodes(tree, draw(target[:, 0], uniforms[:, -1]))
    tokens = tree.tokens[:, :, None]
    drafted = None if tree.probs is None else tree.node_probs(target)
    mass = target[:, :-1].gather(2, tokens)[:, :, 0]
    odds = torch.ones_like(mass) if drafted is None else drafted.gather(2, tokens)[:, :, 0]
    won = uniforms[:, :-1] * odds * lenience < mass
    live = tree.live_mask()
    accepted = prefix(won & live).sum(1)
    rejected = (live & ~won).gather(1, accepted[:, None].clamp(max=tree.size - 1))[:, 0]
    rejected &= accepted < tree.size
    bonus = draw(_last_probs(tree, target, drafted, accepted, rejected), uniforms[:, -1])
    nodes = torch.arange(tree.size, device=tokens.device)
    return Judged(
        path=torch.where(nodes < accepted[:, None], nodes, -1), accepted=accepted, bonus=bonus
    )


def _last_probs(
    tree: DraftedTree, target: Tensor, drafted: Tensor | None, accepted: Tensor, rejected: Tensor
) -> Tensor:
    """Unnormalised probabilities `[B, V]` of the bonus: the residual where a node was rejected."""
    vocabulary = target.shape[2]
    probs = target.gather(1, accepted[:, None, None].expand(-1, -1, vocabulary))[:, 0]
    node = accepted[:, None].clamp(max=tree.size - 1)
    if drafted is None:
        residual = probs.scatter(1, tree.tokens.gather(1, node), 0.0)
    else:
        proposal = drafted.gather(1, node[:, :, None].expand(-1, -1, vocabulary))[:, 0]
        residual = (probs - proposal).clamp_(min=0.0)
    # An empty residual means that rejection had probability 0 up to rounding: keep p.
    usable = rejected[:, None] & (residual.sum(1, keepdim=True) > 0)
    return torch.where(usable, residual, probs)


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` as in the paper, one token at a time."""
    return judge_chain_reference(tree, target, uniforms, 1.0)


def judge_chain_reference(
    tree: DraftedTree, target: Tensor, uniforms: Tensor, lenience: float
) -> Judged:
    """`judge_chain`, one token at a time."""
    paths, bonuses = [], []
    probs_rows, live = tree.probs_lists(), tree.live_mask()
    for row in range(tree.tokens.shape[0]):
        path: list[int] = []
        probs = target[row, 0]
        for node in range(tree.size):
            if not live[row, node]:
                break
            token = tree.tokens[row, node]
            proposal = torch.zeros_like(probs)
            proposal[token] = 1.0
            if tree.probs is not None and probs_rows[row][node] >= 0:
                proposal = tree.probs[row, probs_rows[row][node]]
            if uniforms[row, node] * proposal[token] * lenience < probs[token]:
                path.append(node)
                probs = target[row, node + 1]
                continue
            residual = (probs - proposal).clamp(min=0.0)
            probs = residual if residual.sum() > 0 else probs
            break
        paths.append(path)
        bonuses.append(int(draw(probs, uniforms[row, -1])))
    return judged_of(paths, bonuses, tree.size, tree.tokens)
