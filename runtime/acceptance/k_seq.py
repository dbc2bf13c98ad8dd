"""Rule `k_seq`: the children of a node are scanned under one level of acceptance.

For k children drawn independently from q let beta(r) = sum min(q, p / r), and r in [1, k] the root
of 1 - (1 - beta(r))^k = r beta(r). Children are scanned in order; x is accepted with probability
min(1, p(x) / (r q(x))). When none is, the bonus is drawn from norm(p - min(q, p / r) (1 - (1 -
beta)^k) / beta). Some child is accepted with probability 1 - (1 - beta)^k, at least (1 - 1/e) of
what is best for k independent draws. Lossless at every temperature for children drawn independently
from one law, and for a single child of any kind; for k = 1 it is `token`. The root is bisected, and
its upper end taken: every r from the root to k keeps the law.

Source: Sun et al. 2023, SpecTr, arXiv 2310.15141.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance._walks import descend, descend_reference
from specplan.runtime.acceptance.tree import DraftedTree, Judged
from specplan.runtime.masks import first_true

TARGET = "law"
"""What `target` holds."""

HALVINGS = 40
"""Of the interval that holds the level: it is known to k / 2^40."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes; siblings were drawn independently from one law.
        target: laws `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
    """
    live = tree.live_mask()

    def judge(children: Tensor, law: Tensor) -> tuple[Tensor, Tensor]:
        judged = children & live
        first = first_true(judged)
        proposal = _law_of(tree, first, law)
        level, left = _shared(law, proposal, judged.sum(1, keepdim=True))
        odds, mass = proposal.gather(1, tree.tokens), law.gather(1, tree.tokens)
        won = judged & (uniforms[:, :-1] * odds * level < mass)
        winner = first_true(won)
        return winner.where(won.any(1, keepdim=True), -1), left

    return descend(tree, target, uniforms, judge)


accept_vectorised = accept


def _law_of(tree: DraftedTree, node: Tensor, like: Tensor) -> Tensor:
    """The law `[B, V]` that `node` `[B, 1]` was drawn from."""
    point = torch.zeros_like(like).scatter_(1, tree.tokens.gather(1, node), 1.0)
    if tree.laws is None:
        return point
    law_row = tree.law_tensor().gather(1, node)
    index = law_row.clamp(min=0)[:, :, None].expand(-1, -1, like.shape[1])
    return torch.where(law_row < 0, point, tree.laws.gather(1, index)[:, 0].to(like.dtype))


def acceptance_level(law: Tensor, proposal: Tensor, count: Tensor) -> Tensor:
    """The level r, `[..., 1]`, in float64; at least the root.

    Args:
        law: p, `[..., V]`.
        proposal: q, `[..., V]`.
        count: k, `[..., 1]`.
    """
    p, q = law.double(), proposal.double()
    low = torch.ones_like(p[..., :1])
    high = count.to(p.dtype).clamp(min=1.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beta = torch.minimum(q, p / middle).sum(-1, keepdim=True)
        below = 1.0 - (1.0 - beta) ** count > middle * beta
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def _shared(law: Tensor, proposal: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The level `[..., 1]`, and what is left of the law `[..., V]` when all were rejected."""
    level = acceptance_level(law, proposal, count)
    kept = torch.minimum(proposal.double(), law.double() / level)
    beta = kept.sum(-1, keepdim=True).clamp(max=1.0)
    taken = (1.0 - (1.0 - beta) ** count) / beta.where(beta > 0, 1.0)
    left = (law.double() - kept * taken).clamp(min=0.0).to(law.dtype)
    # Nothing left means that rejection had probability 0 up to rounding: keep the law.
    return level, torch.where(left.sum(-1, keepdim=True) > 0, left, law)


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` as in the paper, one child and one number at a time."""
    law_rows, tokens, numbers = tree.law_lists(), tree.tokens.tolist(), uniforms.tolist()
    live = tree.live_mask().tolist()

    def judge(row: int, children: list[int], law: Tensor) -> tuple[int | None, Tensor]:
        judged = [node for node in children if live[row][node]]
        if not judged:
            return None, law
        p: list[float] = law.tolist()
        index, token = law_rows[row][judged[0]], tokens[row][judged[0]]
        q: list[float] = [float(x == token) for x in range(len(p))]
        if tree.laws is not None and index >= 0:
            q = tree.laws[row, index].tolist()
        level, left = _shared_reference(p, q, len(judged))
        for node in judged:
            token = tokens[row][node]
            if numbers[row][node] * q[token] * level < p[token]:
                return node, law
        return None, law.new_tensor(left) if sum(left) > 0 else law

    return descend_reference(tree, target, uniforms, judge)


def _shared_reference(p: list[float], q: list[float], count: int) -> tuple[float, list[float]]:
    """The level, and what is left of the law when all were rejected."""

    def kept(level: float) -> list[float]:
        return [min(y, x / level) for x, y in zip(p, q, strict=True)]

    low, high = 1.0, float(count)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beta = sum(kept(middle))
        if 1.0 - (1.0 - beta) ** count > middle * beta:
            low = middle
        else:
            high = middle
    shared = kept(high)
    beta = min(sum(shared), 1.0)
    taken = (1.0 - (1.0 - beta) ** count) / beta if beta > 0 else 0.0
    return high, [max(x - y * taken, 0.0) for x, y in zip(p, shared, strict=True)]
