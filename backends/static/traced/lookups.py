"""Lookups and updates of sources, on the host, before and after a round's one call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.backends.eager import sources
from specplan.backends.eager.op_runner import OpRunner, Scope, nodes_as, typed
from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.keys import FIRST_KEY
from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.backends.static.interface import Lesson
from specplan.ir.ops import Lookup, Op, Segment, Update
from specplan.ir.types.host_ops import handed_out
from specplan.ir.values import Value
from specplan.runtime.sources.registry import BatchSource


@dataclass(frozen=True)
class Texts:
    """Texts as a round finds them, on the CPU; see `specplan.backends.eager.sources.Texts`."""

    text: Tensor
    lengths: list[int]
    done: list[bool]
    sources: Mapping[str, BatchSource]

    @property
    def starts(self) -> list[int]:
        """No text has grown yet."""
        return self.lengths

    def emitted(self, row: int) -> bool:
        """No text has grown yet."""
        return False


@dataclass(frozen=True)
class HostRun(OpRunner):
    """Runs the ops of a round that need nothing that a model computes.

    Attributes:
        texts: what they look at.
        analysis: of the plan.
        scores: of which type scores of nodes are; None where none are asked for.
    """

    texts: Texts
    analysis: PlanAnalysis
    scores: torch.dtype | None
    trip: int = 0

    def look_up(self, ops: Sequence[Op], read: Collection[Value]) -> list[Continuations]:
        """Run ops in order.

        Args:
            ops: as `specplan.ir.types.host_ops.host_ops` has them first.
            read: what any of them reads; trees that none does are not made.

        Returns:
            The continuations of each lookup, `[B, N]`.
        """
        scope: Scope = {}
        lookups: list[Continuations] = []
        requests = len(self.texts.lengths)
        for op in ops:
            match op:
                case Segment():
                    known = {out: scope[own] for out, own in handed_out(op) if own in scope}
                    scope.update(known)
                case Update():
                    sources.update(self.texts, op, typed(scope[op.tree], Tree), None)
                case Lookup():
                    parts = self.continuations(op, nodes_as(scope[op.at]))
                    tokens, parents, live = (part.reshape(requests, -1) for part in parts)
                    lookups.append((tokens, parents, live))
                    if op.results[0] in read:
                        self.graft(op, scope, parts)
                case _:
                    self.run_op(op, scope)
        return lookups

    def continuations(self, op: Lookup, at: Nodes) -> Continuations:
        """See `OpRunner.continuations`."""
        return sources.continuations_below(self.texts, op, at)

    def root(self, op: Op) -> Tree:
        """See `OpRunner.root`; keys tell nodes of one tree apart, and no others are there."""
        last = torch.tensor(self.texts.lengths)[:, None] - 1
        tokens = self.texts.text.gather(1, last)
        return first_tree(tokens, torch.full_like(tokens, FIRST_KEY), self.scores)


def joined(lookups: Sequence[Continuations], rows: int) -> Continuations:
    """The continuations of all lookups side by side, for a batch padded to `rows`."""
    if not lookups:
        nothing = torch.zeros(rows, 1, dtype=torch.int64)
        return nothing, nothing, torch.zeros(rows, 1, dtype=torch.bool)
    tokens, parents, live = (torch.cat(parts, 1) for parts in zip(*lookups, strict=True))
    more = (0, 0, 0, rows - len(tokens))
    pad = torch.nn.functional.pad
    return pad(tokens, more), pad(parents, more), pad(live, more)


def teach(texts: Texts, lessons: Sequence[Lesson], reported: Tensor) -> None:
    """Teach sources what a round has reported.

    Args:
        texts: as they were before it.
        lessons: what they learn.
        reported: numbers of each request, int64 `[B, ...]`.
    """
    parts = reported[: len(texts.lengths)].split([one.numbers for one in lessons], 1)
    for one, numbers in zip(lessons, parts, strict=True):
        if not one.numbers:
            sources.teach_text(texts, one.op)
            continue
        first, second, *others = (part.numpy() for part in numbers.split(one.columns, 1))
        if one.width:
            likeliest = numbers[:, 2 * one.columns :].unflatten(1, (one.columns, one.width))
            sources.teach_logits(texts, one.op, first, second > 0, likeliest.numpy())
        else:
            sources.teach_paths(texts, one.op, first, second, others[0] > 0)
