"""Rule `k_seq`: the children of a node are scanned under one level of acceptance.

For k children drawn independently from q let beta(r) = sum min(q, p / r), and r in [1, k] the root
of 1 - (1 - beta(r))^k = r beta(r). Children are scanned in order; x is accepted with probability
min(1, p(x) / (r q(x))). When none is, the bonus is drawn from norm(p - min(q, p / r) (1 - (1 -
beta)^k) / beta). Some child is accepted with probability 1 - (1 - beta)^k, at least (1 - 1/e) of
what is best for k independent draws. Lossless at every temperature for children drawn independently
from one distribution, and for a single child of any kind; for k = 1 it is `token`. The root is
bisected, and its upper end taken: every r from the root to k keeps the distribution.

Source: Sun et al. 2023, SpecTr, arXiv 2310.15141.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance._walks import descend, descend_reference
from specplan.runtime.acceptance.tree import DraftedTree, Judged
from specplan.runtime.masks import first_true

TARGET = "probabilities"
"""What `target` holds."""

HALVINGS = 40
"""Of the interval that holds the level: it is known to k / 2^40."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes; siblings were drawn independently from one distribution.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
    """
    live = tree.live_mask()

    def judge(children: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
        judged = children & live
        first = first_true(judged)
        proposal = _probs_of(tree, first, probs)
        level, left = _shared(probs, proposal, judged.sum(1, keepdim=True))
        odds, mass = proposal.gather(1, tree.tokens), probs.gather(1, tree.tokens)
        won = judged & (uniforms[:, :-1] * odds * level < mass)
        winner = first_true(won)
        return winner.where(won.any(1, keepdim=True), -1), left

    return descend(tree, target, uniforms, judge)


accept_vectorised = accept


def _probs_of(tree: DraftedTree, node: Tensor, like: Tensor) -> Tensor:
    """The distribution `[B, V]` that `node` `[B, 1]` was drawn from."""
    point = torch.zeros_like(like).scatter_(1, tree.tokens.gather(1, node), 1.0)
    if tree.probs is None:
        return point
    probs_row = tree.probs_tensor().gather(1, node)
    index = probs_row.clamp(min=0)[:, :, None].expand(-1, -1, like.shape[1])
    return torch.where(probs_row < 0, point, tree.probs.gather(1, index)[:, 0].to(like.dtype))


def acceptance_level(probs: Tensor, proposal: Tensor, count: Tensor) -> Tensor:
    """The level r, `[..., 1]`, in float64; at least the root.

    Args:
        probs: p, `[..., V]`.
        proposal: q, `[..., V]`.
        count: k, `[..., 1]`.
    """
    p, q = probs.double(), proposal.double()
    low = torch.ones_like(p[..., :1])
    high = count.to(p.dtype).clamp(min=1.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beta = torch.minimum(q, p / middle).sum(-1, keepdim=True)
        below = 1.0 - (1.0 - beta) ** count > middle * beta
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def _shared(probs: Tensor, proposal: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The level `[..., 1]`, and the residual `[..., V]` after all children were rejected."""
    level = acceptance_level(probs, proposal, count)
    shared = torch.minimum(proposal.double(), probs.double() / level)
    beta = shared.sum(-1, keepdim=True).clamp(max=1.0)
    taken = (1.0 - (1.0 - beta) ** count) / beta.where(beta > 0, 1.0)
    left = (probs.double() - shared * taken).clamp(min=0.0).to(probs.dtype)
    # An empty residual means that rejection had probability 0 up to rounding: keep p.
    return level, torch.where(left.sum(-1, keepdim=True) > 0, left, probs)


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` as in the paper, one child and one number at a time."""
    probs_rows, tokens, numbers = tree.probs_lists(), tree.tokens.tolist(), uniforms.tolist()
    live = tree.live_mask().tolist()

    def judge(row: int, children: list[int], probs: Tensor) -> tuple[int | None, Tensor]:
        judged = [node for node in children if live[row][node]]
        if not judged:
            return None, probs
        p: list[float] = probs.tolist()
        index, token = probs_rows[row][judged[0]], tokens[row][judged[0]]
        q: list[float] = [float(x == token) for x in range(len(p))]
        if tree.probs is not None and index >= 0:
            q = tree.probs[row, index].tolist()
        level, left = _shared_reference(p, q, len(judged))
        for node in judged:
            token = tokens[row][node]
            if numbers[row][node] * q[token] * level < p[token]:
                return node, probs
        return None, probs.new_tensor(left) if sum(left) > 0 else probs

    return descend_reference(tree, target, uniforms, judge)


def _shared_reference(p: list[float], q: list[float], count: int) -> tuple[float, list[float]]:
    """The level, and the residual after all children were rejected."""

    def overlap(level: float) -> list[float]:
        return [min(y, x / level) for x, y in zip(p, q, strict=True)]

    low, high = 1.0, float(count)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beta = sum(overlap(middle))
        if 1.0 - (1.0 - beta) ** count > middle * beta:
            low = middle
        else:
            high = middle
    shared = overlap(high)
    beta = min(sum(shared), 1.0)
    taken = (1.0 - (1.0 - beta) ** count) / beta if beta > 0 else 0.0
    return high, [max(x - y * taken, 0.0) for x, y in zip(p, shared, strict=True)]
