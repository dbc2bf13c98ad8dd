"""`mix`: rows of the target combined with those that a tree was grown from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.values import Rows, Tree
from specplan.ir.ops import Mix
from specplan.ir.tables import BUILTIN


def mix(op: Mix, rows: Rows, over: Tree) -> Rows:
    """Logits of the same nodes; there is one where both have one.

    Args:
        op: names the law.
        rows: of the target.
        over: a tree whose nodes' children were grown from other rows.
    """
    declared = BUILTIN.find("law", op.law.name)
    assert declared is not None
    assert rows.nodes is not None, "a forward gives rows of one set of nodes"
    others, known = torch.zeros_like(rows.values), torch.zeros_like(rows.live)
    for held in over.rows:
        found, there = held.of(rows.nodes)
        others, known = torch.where(there[:, :, None], found, others), known | there
    mixed = LAWS[op.law.name](rows.values, others, **declared.arguments(op.law))
    return replace(rows, values=mixed, live=rows.live & known)


def contrastive(target: Tensor, draft: Tensor, *, beta: float, alpha: float) -> Tensor:
    """Proportional to p^(1 + beta) / q^beta where p is at least alpha of its largest.

    Source: Yuan et al. 2023, arXiv 2311.08981; the plausible set: Li et al. 2022, arXiv 2210.15097.
    """
    p, q = target.log_softmax(-1), draft.log_softmax(-1)
    plausible = p >= p.amax(-1, keepdim=True) + torch.tensor(alpha, dtype=p.dtype).log()
    return ((1.0 + beta) * p - beta * q).where(plausible, -1e9)


LAWS: dict[str, Callable[..., Tensor]] = {"contrastive": contrastive}
"""By the names that plans give them."""
