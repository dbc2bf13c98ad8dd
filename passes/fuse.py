"""Judging, emitting and keeping what was emitted become one unit of compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from specplan.ir.ops import Accept, Commit, Emit, Op, Region, Segment
from specplan.ir.plan import Plan, Round
from specplan.ir.values import Value
from specplan.passes.values import FreshNames, read_by, with_rounds, with_values


def fuse(plan: Plan) -> Plan:
    """`accept`, `emit`, `commit` in a row -> `segment fuse=true { ... }`.

    The three read a few numbers per request and move a few rows of caches: one kernel does what
    would be many launches.
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
            yield _segment(tuple(run), read_by(ops[place + len(run) :]), fresh)
        else:
            yield ops[place]
        place += max(len(run), 1)


def _segment(run: tuple[Op, ...], later: set[Value], fresh: FreshNames) -> Segment:
    given = [name for op in run for name in op.results]
    inside = {name: fresh.like(name) for name in given}
    kept = tuple(name for name in given if name in later)
    body = Region(
        ops=with_values(run, lambda value: inside.get(value, value)),
        yields=tuple(inside[name] for name in kept),
    )
    return Segment(results=kept, fuse=True, body=body)


def _run(ops: Sequence[Op]) -> Sequence[Op]:
    """The first ops, as far as they judge, emit what was judged and commit what was emitted."""
    if len(ops) < 2 or not isinstance(ops[0], Accept) or not isinstance(ops[1], Emit):
        return ()
    stop = 2
    while stop < len(ops) and isinstance(ops[stop], Commit):
        stop += 1
    return ops[:stop]
