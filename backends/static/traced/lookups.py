"""Lookups and updates of sources, on the host, before and after a round's one call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from specplan.backends.eager import sources
from specplan.backends.eager.interpreter import Interpreter
from specplan.backends.eager.op_runner import Scope, nodes_as
from specplan.backends.eager.state.batch import Batch
from specplan.backends.ops.lookup import Continuations
from specplan.backends.static.interface import Lesson
from specplan.ir.ops import Lookup, Op, Segment
from specplan.ir.types.host_ops import handed_out
from specplan.ir.values import Value


def look_up(host: Interpreter, ops: Sequence[Op], read: Collection[Value]) -> Continuations:
    """Run the ops of a round that need nothing that a model computes.

    Args:
        host: a batch as it is before the round.
        ops: as `specplan.ir.types.host_ops.host_ops` has them first.
        read: what any of them reads; trees that none does are not made.

    Returns:
        The continuations of all lookups side by side, `[B, N]`, on the CPU.
    """
    scope: Scope = {}
    rows, lookups = host.batch.size, list[Continuations]()
    for op in ops:
        match op:
            case Segment():
                known = {out: scope[own] for out, own in handed_out(op) if own in scope}
                scope.update(known)
            case Lookup():
                parts = host.continuations(op, nodes_as(scope[op.at]))
                tokens, parents, live = (part.reshape(rows, -1) for part in parts)
                lookups.append((tokens, parents, live))
                if op.results[0] in read:
                    host.graft(op, scope, parts)
            case _:
                host.run_op(op, scope)
    if not lookups:
        nothing = torch.zeros(rows, 1, dtype=torch.int64)
        return nothing, nothing, nothing.bool()
    tokens, parents, live = (torch.cat(parts, 1).cpu() for parts in zip(*lookups, strict=True))
    return tokens, parents, live


def teach(batch: Batch, lessons: Sequence[Lesson], reported: Tensor) -> None:
    """Teach sources what a round has reported.

    Args:
        batch: as it was before it.
        lessons: what they learn.
        reported: numbers of each request, int64 `[B, ...]`.
    """
    parts = reported.split([one.numbers for one in lessons], 1)
    for one, numbers in zip(lessons, parts, strict=True):
        if not one.numbers:
            sources.teach_text(batch, one.op)
            continue
        first, second, *others = (part.numpy() for part in numbers.split(one.columns, 1))
        if one.width:
            likeliest = numbers[:, 2 * one.columns :].unflatten(1, (one.columns, one.width))
            sources.teach_logits(batch, one.op, first, second > 0, likeliest.numpy())
        else:
            sources.teach_paths(batch, one.op, first, second, others[0] > 0)
