"""Rule `contrastive`: a chain is judged by what the target knows better than the draft.

The law to be emitted is proportional to p^(1 + beta) / q^beta on the plausible set {x: p(x) >=
alpha max p}, p the target's law and q the law that a node was drawn from; a chain is judged as
`token` does, with that law in place of p. Lossy, and meant to be: the law is not the target's.
After the last node, and where a node was not drawn, no q is known and p stands: the paper runs the
draft once more there. At temperature 0 it is `greedy`.

The law `contrastive` (`mix`) does the same to raw rows, before sampling settings.

Source: Yuan et al. 2023, Speculative Contrastive Decoding, arXiv 2311.08981; the plausible set: Li
et al. 2022, arXiv 2210.15097.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.runtime.acceptance._mixtures import judge, judge_reference
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "law"
"""What `target` holds."""


def accept(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor,
    *,
    beta: float = 0.5,
    alpha: float = 0.1,
) -> Judged:
    """Judge a chain.

    Args:
        tree: node i's parent is node i - 1.
        target: laws `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
        beta: strength of the contrast; 0 leaves the target's law on the plausible set.
        alpha: a token is plausible from this part of the highest probability on.
    """
    return judge(tree, target, uniforms, lambda p, q: mixture(p, q, beta, alpha))


accept_vectorised = accept


def mixture(p: Tensor, q: Tensor, beta: float, alpha: float) -> Tensor:
    """The law to be emitted, `[..., V]`, of laws `[..., V]`."""
    least = torch.finfo(q.dtype).tiny
    score = (1.0 + beta) * p.clamp(min=least).log() - beta * q.clamp(min=least).log()
    plausible = (p > 0) & (p >= alpha * p.amax(-1, keepdim=True))
    return score.where(plausible, -torch.inf).softmax(-1)


def accept_reference(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor,
    *,
    beta: float = 0.5,
    alpha: float = 0.1,
) -> Judged:
    """`accept`, one law at a time."""
    return judge_reference(tree, target, uniforms, lambda p, q: mixture(p, q, beta, alpha))
