"""Rule `recursive`: recursive rejection sampling down a tree.

At each node the residual R starts as the target's distribution. Children are judged in order: x
drawn from D is accepted with probability min(1, R(x) / D(x)), else R becomes norm((R - D)+). For
siblings drawn without replacement, x is then removed from D, which is renormalised, or becomes
uniform over the tokens not drawn yet when no mass is left. A point child (ranked or looked up) is
accepted with probability R(x), else x is removed from R. When no child is left, the bonus is drawn
from R. Lossless at every temperature.

Sources: Sequoia, arXiv 2402.12374, section 3 (without replacement, with the fallback that its
released code leaves out); MCSD, arXiv 2401.06706; RSD, arXiv 2402.14160; EAGLE-2, arXiv 2406.16858
(point children).
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance._walks import descend, descend_reference
from specplan.runtime.acceptance.tree import DraftedTree, Judged
from specplan.runtime.masks import first_true

TARGET = "probabilities"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """Judge a tree.

    Args:
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
    """
    # On the CPU the walk, which looks at the nodes it visits only, is several times faster. The
    # choice is by device alone, so that a row's arithmetic does not depend on its batch mates.
    if target.device.type == "cpu":
        return accept_reference(tree, target, uniforms)
    return accept_vectorised(tree, target, uniforms)


def accept_vectorised(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` in tensor ops; loops over depth and siblings, never over the batch."""
    return descend(
        tree,
        target,
        uniforms,
        lambda children, probs: _judge_children(tree, children, probs, uniforms),
    )


def _judge_children(
    tree: DraftedTree, children: Tensor, residual: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """Judge the children of one node per row, in order.

    Args:
        tree: the drafted nodes.
        children: bool `[B, N]`.
        residual: `[B, V]`, the target's distribution at the node.
        uniforms: `[B, N + 1]`.

    Returns:
        The accepted child `[B, 1]` or -1, and the residual after those rejected `[B, V]`.
    """
    live = tree.live_mask()
    chosen = torch.full_like(tree.tokens[:, :1], -1)
    waiting = children & live
    for _ in range(tree.width):
        there = waiting.any(1, keepdim=True) & (chosen < 0)
        node = first_true(waiting)
        waiting = waiting.scatter(1, node, False)
        token = tree.tokens.gather(1, node)
        proposal = _proposal(tree, children, node, token, residual)
        odds, mass = proposal.gather(1, token), residual.gather(1, token)
        won = there & (uniforms.gather(1, node) * odds < mass)
        chosen = torch.where(won, node, chosen)
        residual = torch.where(there & ~won, _reject(residual, proposal), residual)
    return chosen, residual


def _proposal(
    tree: DraftedTree, siblings: Tensor, node: Tensor, token: Tensor, like: Tensor
) -> Tensor:
    """Probabilities `[B, V]` that `node` `[B, 1]` was drawn by, after the siblings before it."""
    point = torch.zeros_like(like).scatter_(1, token, 1.0)
    if tree.probs is None:
        return point
    probs_rows = tree.probs_tensor()
    probs_row = probs_rows.gather(1, node)
    index = probs_row.clamp(min=0)[:, :, None].expand(-1, -1, like.shape[1])
    probs = tree.probs.gather(1, index)[:, 0].to(like.dtype)
    if tree.distinct:
        earlier = torch.arange(tree.size, device=node.device) < node
        same = siblings & earlier & (probs_rows == probs_row)
        probs = without(
            probs, torch.zeros_like(like).scatter_add_(1, tree.tokens, same.to(like.dtype))
        )
    return torch.where(probs_row < 0, point, probs)


def without(probs: Tensor, removed: Tensor) -> Tensor:
    """`probs` without the tokens `removed`, renormalised; uniform over the rest when empty.

    Args:
        probs: `[..., V]`.
        removed: `[..., V]`, non-zero where a token is gone.
    """
    left = probs.where(removed == 0, 0.0)
    total = left.sum(-1, keepdim=True)
    rest = (removed == 0).to(probs.dtype)
    uniform = rest / rest.sum(-1, keepdim=True).clamp(min=1.0)
    return torch.where(total > 0, left / total.where(total > 0, 1.0), uniform)


def _reject(residual: Tensor, proposal: Tensor) -> Tensor:
    """norm((R - D)+); R itself when nothing is left, as then rejection was a rounding error."""
    left = (residual - proposal).clamp(min=0.0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total > 0, left / total.where(total > 0, 1.0), residual)


def accept_reference(tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Judged:
    """`accept` as in the papers, one child at a time."""
    probs_rows, tokens, numbers = tree.probs_lists(), tree.tokens.tolist(), uniforms.tolist()
    live = None if tree.live is None else tree.live.tolist()

    def judge(row: int, children: list[int], residual: Tensor) -> tuple[int | None, Tensor]:
        for node in children:
            if live is not None and not live[row][node]:
                continue
            probs_row, token = probs_rows[row][node], tokens[row][node]
            removed = [
                tokens[row][s] for s in children if s < node and probs_rows[row][s] == probs_row
            ]
            proposal = _walk_proposal(tree, row, probs_row, token, removed, residual)
            if numbers[row][node] * float(proposal[token]) < float(residual[token]):
                return node, residual
            residual = _reject(residual, proposal)
        return None, residual

    return descend_reference(tree, target, uniforms, judge)


def _walk_proposal(
    tree: DraftedTree, row: int, probs_row: int, token: int, removed: list[int], like: Tensor
) -> Tensor:
    """The distribution `[V]` that a child was drawn from after its siblings with tokens `gone`."""
    if tree.probs is None or probs_row < 0:
        point = torch.zeros_like(like)
        point[token] = 1.0
        return point
    probs = tree.probs[row, probs_row]
    if not tree.distinct:
        return probs
    probs = probs.index_fill(0, torch.tensor(removed, dtype=torch.int64, device=probs.device), 0.0)
    total = probs.sum()
    if total > 0:
        return probs / total
    probs = torch.ones_like(probs)
    probs[removed] = 0.0
    return probs / probs.sum()
