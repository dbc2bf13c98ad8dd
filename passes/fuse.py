"""Judging, emitting and keeping what was emitted are marked as one unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from specplan.ir.lifetimes import read_by
from specplan.ir.ops import Accept, Commit, Emit, Op
from specplan.ir.plan import Plan, Round
from specplan.passes.values import FreshNames, segment_of, with_rounds


def fuse(plan: Plan) -> Plan:
    """`accept`, `emit`, `commit` in a row -> `segment fuse=true { ... }`.

    The three read a few numbers per request and move a few rows of caches, so that one kernel could
    do them. The mark says so and no more: backends that compile whole rounds compile across it, and
    no backend makes one kernel of it.
    """
    return with_rounds(plan, _round)


def _round(item: Round) -> Round:
    return dataclasses.replace(item, ops=tuple(_fused(item.ops, FreshNames(item))))


def _fused(ops: Sequence[Op], fresh: FreshNames) -> Iterator[Op]:
    """Ops with runs put into segments, which hand out what is read of them under its old name."""
    place = 0
    while place < len(ops):
        run = _run(ops[place:])
        if run:
            later = read_by(ops[place + len(run) :])
            yield segment_of(tuple(run), later, fresh, fuse=True)
        else:
            yield ops[place]
        place += max(len(run), 1)


def _run(ops: Sequence[Op]) -> Sequence[Op]:
    """The first ops, as far as they judge, emit what was judged and commit what was emitted."""
    if len(ops) < 2 or not isinstance(ops[0], Accept) or not isinstance(ops[1], Emit):
        return ()
    stop = 2
    while stop < len(ops) and isinstance(ops[stop], Commit):
        stop += 1
    return ops[:stop]
