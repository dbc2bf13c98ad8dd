"""Rule `block`: a chain is judged as a whole.

Node i is reached with probability P(i) = min(P(i - 1) p(x_i) / q(x_i), 1), P(0) = 1. Every node
throws its own coin, h(i) = A / (A + 1 - P(i)) where A = sum of (P(i) p - q)+ over the distributions
of node i + 1, and h = P at the last node; the chain is kept up to the last success. The bonus is
drawn from norm((P p - q)+) after the last kept node, or from p where all are kept. A point
distribution is q = 1 at x. Lossless at every temperature; keeps at least as many tokens on average
as `token`, and as many for one node.
Source: Sun et al. 2024, Block Verification, arXiv 2403.10444.
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
    if tree.size == 0:
        return judged_without_nodes(tree, draw(target[:, 0], uniforms[:, -1]))
    drafted = tree.node_probs(target)
    live = prefix(tree.live_mask())
    ends = live.sum(1)
    reached = _reached(tree, target, drafted)
    coins = _coins(target, drafted, reached)
    places = torch.arange(1, tree.size + 1, device=target.device)
    coins = torch.where(places == ends[:, None], reached[:, 1:], coins)
    accepted = ((uniforms[:, :-1] < coins) & live).long().mul(places).amax(1)
    last = _last_probs(target, drafted, reached, accepted, accepted == ends)
    path = torch.where(places <= accepted[:, None], places - 1, -1)
    return Judged(path=path, accepted=accepted, bonus=draw(last, uniforms[:, -1]))


accept_vectorised = accept


def _reached(tree: DraftedTree, target: Tensor, drafted: Tensor) -> Tensor:
    """P(i) of the root and of every node, `[B, N + 1]`."""
    tokens = tree.tokens[:, :, None]
    mass = target[:, :-1].gather(2, tokens)[:, :, 0]
    odds = drafted.gather(2, tokens)[:, :, 0]
    products = [torch.ones_like(mass[:, 0])]
    for node in range(tree.size):
        products.append(_next(products[-1], mass[:, node], odds[:, node]))
    return torch.stack(products, 1)


def _next(reached: Tensor, mass: Tensor, odds: Tensor) -> Tensor:
    """P(i) from P(i - 1); a token of draft probability 0 counts as one near 0."""
    over = reached * mass
    return torch.where(odds > 0, over / odds, (over > 0).to(over.dtype)).clamp(max=1.0)


def _coins(target: Tensor, drafted: Tensor, reached: Tensor) -> Tensor:
    """h(i) of every node `[B, N]`, as if the last one were the chain's last."""
    inner = reached[:, 1:-1]
    surplus = (inner[:, :, None] * target[:, 1:-1] - drafted[:, 1:]).clamp(min=0.0).sum(2)
    whole = surplus + 1.0 - inner
    return torch.cat([torch.where(whole > 0, surplus / whole, 1.0), reached[:, -1:]], 1)


def _last_probs(
    target: Tensor, drafted: Tensor, reached: Tensor, accepted: Tensor, all_of_it: Tensor
) -> Tensor:
    """Unnormalised probabilities `[B, V]` of the bonus."""
    shape = (-1, -1, target.shape[2])
    probs = target.gather(1, accepted[:, None, None].expand(*shape))[:, 0]
    node = accepted.clamp(max=drafted.shape[1] - 1)[:, None, None]
    proposal = drafted.gather(1, node.expand(*shape))[:, 0]
    residual = (reached.gather(1, accepted[:, None]) * probs - proposal).clamp(min=0.0)
    # An empty residual means that stopping here had probability 0 up to rounding: keep p.
    usable = ~all_of_it[:, None] & (residual.sum(1, keepdim=True) > 0)
    return torch.where(usable, residual, probs)


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` as in the paper, one token at a time."""
    paths, bonuses = [], []
    live, tokens, proposals = tree.live_mask(), tree.tokens.tolist(), tree.node_probs(target)
    for row, drafted in enumerate(tokens):
        size = int(live[row].long().cumprod(0).sum())
        here, accepted, at_accepted = torch.ones_like(target[row, 0, 0]), 0, torch.ones(())
        for node in range(size):
            token = drafted[node]
            here = _next(here, target[row, node, token], proposals[row, node, token])
            coin = here
            if node + 1 < size:
                residual = here * target[row, node + 1] - proposals[row, node + 1]
                left = residual.clamp(min=0.0).sum()
                coin = left / (left + 1.0 - here) if left + 1.0 - here > 0 else here / here
            if uniforms[row, node] < coin:
                accepted, at_accepted = node + 1, here
        probs = target[row, accepted]
        if accepted < size:
            residual = (at_accepted * probs - proposals[row, accepted]).clamp(min=0.0)
            probs = residual if residual.sum() > 0 else probs
        paths.append(list(range(accepted)))
        bonuses.append(int(draw(probs, uniforms[row, -1])))
    return judged_of(paths, bonuses, tree.size, tree.tokens)
