"""Rule `cascade`: the draft's law stands where it is as sure as the target's.

A chain is judged as `token` does, with the law (1 - r) q + r p in place of p: p the target's law, q
the law that a node was drawn from, r = 1 where max q < max p - alpha TV(p, q), else 0. A node is
accepted with probability 1 - r TV(p, q). Lossy, and meant to be: where r = 0 the draft's law is
emitted. After the last node, and where a node was not drawn, no q is known and p stands. Laws are
those of the request's settings: at temperature 0 both are sure, and a drawn draft stands whatever
it says; there, let the plan take best ranks.

Source: Narasimhan et al. 2024, Faster Cascades via Speculative Decoding, arXiv 2405.19261, the
plug-in of its optimal deferral rule ("OPT"); alpha is its cost of deferring.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance._mixtures import judge, judge_reference
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "law"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor, *, alpha: float = 0.1) -> Judged:
    """Judge a chain.

    Args:
        tree: node i's parent is node i - 1.
        target: laws `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
        alpha: what deferring costs, in probability per total variation.
    """
    return judge(tree, target, uniforms, lambda p, q: mixture(p, q, alpha))


accept_vectorised = accept


def mixture(p: Tensor, q: Tensor, alpha: float) -> Tensor:
    """The law to be emitted, `[..., V]`, of laws `[..., V]`."""
    apart = (p - q).abs().sum(-1, keepdim=True) / 2
    defers = q.amax(-1, keepdim=True) < p.amax(-1, keepdim=True) - alpha * apart
    return torch.where(defers, p, q)


def accept_reference(
    tree: DraftedTree, target: Tensor, uniforms: Tensor, *, alpha: float = 0.1
) -> Judged:
    """`accept`, one law at a time."""
    return judge_reference(tree, target, uniforms, lambda p, q: mixture(p, q, alpha))
