"""Lookups and updates of sources, on the host, before and after a round's one call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specplan.backends.eager import sources
from specplan.backends.eager.interpreter import Interpreter
from specplan.backends.eager.op_runner import Scope, nodes_as
from specplan.backends.eager.state.batch import Batch
from specplan.backends.ops.lookup import Continuations
from specplan.backends.static.interface import Lesson
from specplan.ir.ops import Lookup, Op, Root, Segment
from specplan.ir.types.host_ops import handed_out
from specplan.ir.types.matching import NO_MATCH
from specplan.ir.values import TEXT_STATE, Value
from specplan.runtime.sources.source import Wanted
from specplan.runtime.sources.text import longest_match


class _Results:
    """What lookups give; from the second run on, it is written into the same tensors.

    Args:
        rows: requests of the batch.

    Attributes:
        results: of all lookups side by side, `[B, N]` each, on the CPU.
    """

    def __init__(self, rows: int) -> None:
        nothing = torch.zeros(rows, 1, dtype=torch.int64)
        self.results: Continuations = nothing, nothing.clone(), nothing.bool()
        self.memory: list[tuple[NDArray[Any], ...]] = []

    def _take(self, answers: Sequence[tuple[NDArray[Any], ...]]) -> None:
        """Tokens, parents and live nodes of each lookup."""
        if answers and not self.memory:
            joined = [np.concatenate(parts, 1) for parts in zip(*answers, strict=True)]
            ends = np.cumsum([one[0].shape[1] for one in answers])[:-1]
            split = (np.split(part, ends, axis=1) for part in joined)
            self.memory = [*zip(*split, strict=True)]
            tokens, parents, live = map(torch.from_numpy, joined)
            self.results = tokens, parents, live
            return
        for memory, parts in zip(self.memory, answers, strict=False):
            for place, part in zip(memory, parts, strict=True):
                place[:] = part


class Lookups(_Results):
    """The lookups of a round.

    Args:
        host: a batch as it is before each round.
        ops: as `specplan.ir.types.host_ops.host_ops` has them first: they need nothing that a model
            computes.
        read: what any of them reads; trees that none does are not made.
    """

    def __init__(self, host: Interpreter, ops: Sequence[Op], read: Collection[Value]) -> None:
        super().__init__(host.batch.size)
        self._host, self._ops, self._read = host, ops, read
        self._at_root = _below_the_root(ops)
        self._copies = all(_is_copy(*one) for one in self._at_root or ())
        self._searches = _searches([wanted for _, wanted in self._at_root or ()])

    def run(self) -> None:
        """Look up what follows the texts now."""
        if not self._ops:
            return
        if self._at_root is None:
            self._take(self._interpreted())
        elif self.memory and self._copies:
            self._copy(self._at_root)
        else:
            texts = sources.texts_of(self._host.batch)
            drafts = (sources.ask(self._host.batch, *one, *texts) for one in self._at_root)
            self._take([(one.tokens, one.parents, one.live) for one in drafts])

    def _copy(self, lookups: Sequence[tuple[Lookup, Wanted]]) -> None:
        """`run` where texts are copied from themselves alone, as in most plans.

        Lookups of one longest match find the same: they differ in what is enough for each, and in
        how much they copy of it.
        """
        batch = self._host.batch
        texts = batch.text.cpu().numpy()
        for row, length in enumerate(batch.lengths):
            text = texts[row, :length]
            matches = {
                longest: longest_match(text, longest=longest, **limits)
                for longest, limits in self._searches.items()
            }
            for (_, wanted), (tokens, _, live) in zip(lookups, self.memory, strict=True):
                match, copied = matches[wanted.longest]
                live[row] = fits = match >= wanted.shortest and len(copied) > 0
                tokens[row] = copied[: wanted.length] if fits else 0

    def outcomes(self, done: Sequence[bool]) -> set[int]:
        """The outcome of each request that wants tokens, as `specplan.ir.types.matching` has it."""
        matches = [[bool(row.any()) for row in live] for *_, live in self.memory]
        return {
            next((number for number, match in enumerate(matches) if match[row]), NO_MATCH)
            for row, ended in enumerate(done)
            if not ended
        }

    def part(self, ops: Sequence[Op]) -> Lookups | PartOfLookups:
        """The results of some of the lookups, for a form of the round that reads no others."""
        read, every = _asked(ops), _asked(self._ops)
        return self if read == every else PartOfLookups(self, [*map(every.index, read)])

    def _interpreted(self) -> list[tuple[NDArray[Any], ...]]:
        """Each lookup's continuations `[B, N]`, where lookups read more than texts."""
        host, scope, continuations = self._host, Scope(), list[tuple[NDArray[Any], ...]]()
        for op in self._ops:
            match op:
                case Segment():
                    known = {out: scope[own] for out, own in handed_out(op) if own in scope}
                    scope.update(known)
                case Lookup():
                    parts = host.continuations(op, nodes_as(scope[op.at]))
                    rows = (part.reshape(host.batch.size, -1).cpu().numpy() for part in parts)
                    continuations.append(tuple(rows))
                    if op.results[0] in self._read:
                        host.graft(op, scope, parts)
                case _:
                    host.run_op(op, scope)
        return continuations


class PartOfLookups(_Results):
    """Some of a round's lookups.

    Args:
        whole: the round's, which run before.
        places: of the lookups among them.
    """

    def __init__(self, whole: Lookups, places: Sequence[int]) -> None:
        super().__init__(len(whole.results[0]))
        self._whole, self._places = whole, places

    def run(self) -> None:
        """Take what the whole round's lookups have just given."""
        self._take([self._whole.memory[place] for place in self._places])


def _below_the_root(ops: Sequence[Op]) -> list[tuple[Lookup, Wanted]] | None:
    """Each lookup and what it asks for, where all of them are of whole texts; None if not."""
    roots = {value for op in ops if isinstance(op, Root) for value in op.results}
    lookups = [op for op in ops if isinstance(op, Lookup) and op.at in roots]
    if len(lookups) < sum(not isinstance(op, Root) for op in ops):
        return None
    return [(op, sources.wanted_of(op, 1)) for op in lookups]


def _searches(wanted: Sequence[Wanted]) -> dict[int, dict[str, int]]:
    """For each longest match, the shortest one that is enough for any, and the most tokens."""
    limits: dict[int, dict[str, int]] = {}
    for one in wanted:
        own = limits.setdefault(one.longest, dict(shortest=one.shortest, length=one.length))
        own["shortest"] = min(own["shortest"], one.shortest)
        own["length"] = max(own["length"], one.length)
    return limits


def _asked(ops: Sequence[Op]) -> list[tuple[str, Wanted]]:
    """What lookups ask for, of which source: passes rename what they give."""
    return [(op.source, sources.wanted_of(op, 1)) for op in ops if isinstance(op, Lookup)]


def _is_copy(op: Lookup, wanted: Wanted) -> bool:
    """Whether a lookup gives one copy of a part of the text itself."""
    return op.source == TEXT_STATE and wanted.children == 1 and wanted.nodes is None


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
