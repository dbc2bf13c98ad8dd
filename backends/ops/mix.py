"""`mix`: rows of several models on the same nodes, combined by a law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.ops.tensors.values import Logits, Tree
from specplan.ir.ops import Mix
from specplan.ir.tables.builtin import BUILTIN
from specplan.runtime.laws import LAWS


def mix(op: Mix, logits: Sequence[Logits | Tree], weights: Sequence[Tensor]) -> Logits:
    """Logits of the first operand's nodes; there is one where all have one.

    Args:
        op: names the law.
        logits: rows, or trees, which stand for the rows that their children were grown from.
        weights: numbers `[B]`, one for each operand, or none.
    """
    declared = BUILTIN.find("law", op.law.name)
    first, *others = logits
    assert declared is not None and isinstance(first, Logits)
    assert first.nodes is not None, "a forward gives rows of one set of nodes"
    values, live = [first.values], first.live
    for other in others:
        aligned, covered = torch.zeros_like(first.values), torch.zeros_like(first.live)
        for part in other.logits if isinstance(other, Tree) else (other,):
            values_there, there = part.of(first.nodes)
            aligned = torch.where(there[:, :, None], values_there, aligned)
            covered = covered | there
        values.append(aligned)
        live = live & covered
    shares = torch.stack(list(weights))[:, :, None].to(first.values) if weights else None
    mixed = LAWS[op.law.name].combine(torch.stack(values), shares, **declared.arguments(op.law))
    sure = all(
        isinstance(one, Logits) and one.sure and first.nodes.same(one.nodes) for one in logits
    )
    return replace(first, values=mixed, live=live, deeper=(), sure=sure)
