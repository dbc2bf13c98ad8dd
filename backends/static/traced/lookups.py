"""What the host looks up and teaches around a round's one call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from specplan.backends.eager import sources
from specplan.backends.eager.prepared import Prepared
from specplan.backends.eager.values import Scope, held_as, nodes_as
from specplan.backends.ops import Runner, lowerings
from specplan.backends.ops.lookup import Continuations, lookup
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.keys import FIRST_KEY
from specplan.backends.ops.tensors.values import Tree
from specplan.backends.static.interface import Taught
from specplan.ir.ops import Lookup, Op, Segment, Update
from specplan.ir.types.host_ops import handed_out
from specplan.ir.types.value_types import TreeType, Type
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
class HostRun:
    """Runs the ops of a round that nothing a model computes is needed for.

    Attributes:
        texts: what they look at.
        prepared: of the plan.
        scores: of which type scores of nodes are; None where none are asked for.
    """

    texts: Texts
    prepared: Prepared
    scores: torch.dtype | None

    def run(self, ops: Sequence[Op], read: Collection[Value]) -> list[Continuations]:
        """Run ops in order.

        Args:
            ops: as `specplan.ir.types.host_ops.host_ops` has them first.
            read: what any of them reads; trees that none does are not made.

        Returns:
            What each lookup found, `[B, N]`.
        """
        scope: Scope = {}
        found: list[Continuations] = []
        for op in ops:
            match op:
                case Segment():
                    known = {out: scope[own] for out, own in handed_out(op) if own in scope}
                    scope.update(known)
                case Update():
                    sources.update(self.texts, op, held_as(scope[op.tree], Tree), None)
                case Lookup():
                    found.append(self._lookup(op, scope, read))
                case _:
                    runner = cast(Runner, self)
                    scope[op.results[0]] = lowerings()[op.keyword](op, scope, runner)
        return found

    def _lookup(self, op: Lookup, scope: Scope, read: Collection[Value]) -> Continuations:
        tree, at = held_as(scope[op.tree], Tree), nodes_as(scope[op.at])
        parts = sources.asked(self.texts, op, at)
        if op.results[0] in read:
            kind = held_as(self.kind(op), TreeType)
            scope[op.results[0]] = lookup(op, tree, at, continuations=parts, kind=kind)
        tokens, parents, live = (part.reshape(len(self.texts.lengths), -1) for part in parts)
        return tokens, parents, live

    def kind(self, op: Op) -> Type:
        """See `Runner.kind`."""
        return self.prepared.steps[id(op), 0].gives[0]

    def reads(self, op: Op) -> Mapping[Value, Type]:
        """See `Runner.reads`."""
        return self.prepared.steps[id(op), 0].reads

    def root(self, op: Op) -> Tree:
        """See `Runner.root`; keys tell nodes of one tree apart, and no others are there."""
        last = torch.tensor(self.texts.lengths)[:, None] - 1
        tokens = self.texts.text.gather(1, last)
        return first_tree(tokens, torch.full_like(tokens, FIRST_KEY), self.scores)


def joined(found: Sequence[Continuations], rows: int) -> Continuations:
    """What all lookups found side by side, for a batch of `rows` that may be filled up."""
    if not found:
        nothing = torch.zeros(rows, 1, dtype=torch.int64)
        return nothing, nothing, torch.zeros(rows, 1, dtype=torch.bool)
    tokens, parents, live = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    more = (0, 0, 0, rows - len(tokens))
    pad = torch.nn.functional.pad
    return pad(tokens, more), pad(parents, more), pad(live, more)


def teach(texts: Texts, taught: Sequence[Taught], told: Tensor) -> None:
    """Teach sources what a round has told of.

    Args:
        texts: as they were before it.
        taught: what they learn.
        told: numbers of each request, int64 `[B, ...]`.
    """
    parts = told[: len(texts.lengths)].split([one.told for one in taught], 1)
    for one, numbers in zip(taught, parts, strict=True):
        if not one.told:
            sources.teach_text(texts, one.op)
            continue
        first, second, *others = _columns(numbers, one.columns)
        if one.width:
            likeliest = numbers[:, 2 * one.columns :].unflatten(1, (one.columns, one.width))
            sources.teach_rows(texts, one.op, first, second > 0, likeliest.numpy())
        else:
            sources.teach_runs(texts, one.op, first, second, others[0] > 0)


def _columns(numbers: Tensor, width: int) -> list[Any]:
    return [part.numpy() for part in numbers.split(width, 1)]
