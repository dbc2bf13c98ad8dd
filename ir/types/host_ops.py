"""Ops of a round that the host runs before and after its one compiled call.

Lookups in texts, and lookups below their results, depend on nothing that a model computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.op import Op
from specplan.ir.ops import Lookup, Segment, Update
from specplan.ir.plan import Round, walk
from specplan.ir.types.scope import operands
from specplan.ir.values import State, Value

ON_THE_HOST = frozenset({"root", "lookup", "pick", "prune", "place", "relabel", "graft", "update"})
"""Keywords of ops that run on the host where all their operands are known there."""


def host_ops(item: Round) -> tuple[tuple[Op, ...], tuple[Update, ...]]:
    """What the host does around the call, each in program order.

    Returns:
        The ops before the call: lookups, updates of sources with what no model computes, and the
        ops that both depend on, none of them in a loop or under a condition; a segment that yields
        some of their results follows its ops. And the updates after the call: of judged nodes and
        drafted tokens, and all later updates of the same sources.
    """
    known: set[Value] = set()
    before: list[Op] = []
    after: list[Update] = []
    later: set[State] = set()
    for op in _straight(item.ops):
        runs = op.keyword in ON_THE_HOST and known.issuperset(operands(op))
        if isinstance(op, Segment):
            handed = {out for out, own in handed_out(op) if own in known}
            before += [op] if handed else []
            known |= handed
        elif isinstance(op, Update) and (op.source in later or not runs):
            after.append(op)
            later.add(op.source)
        elif runs:
            before.append(op)
            known.update(op.results)
    return tuple(_needed(before)), tuple(after)


def _needed(ops: list[Op]) -> list[Op]:
    """Lookups and updates, and the ops that they depend on."""
    wanted: set[Value] = set()
    needed: list[Op] = []
    for op in reversed(ops):
        if isinstance(op, Segment):
            handed = {own for out, own in handed_out(op) if out in wanted}
            wanted |= handed
            needed += [op] if handed else []
        elif isinstance(op, Lookup | Update) or not wanted.isdisjoint(op.results):
            wanted.update(operands(op))
            needed.append(op)
    return needed[::-1]


def misplaced(item: Round) -> Iterator[tuple[Op, str]]:
    """Lookups and updates that cannot stand before or after a round's one call, and why."""
    before, after = (set(map(id, ops)) for ops in host_ops(item))
    taught: set[State] = set()
    for op in walk(item.ops):
        if not isinstance(op, Lookup | Update):
            continue
        if id(op) not in before | after:
            yield (
                op,
                "it depends on a model's drafts or stands in a loop, so the host cannot run it",
            )
        elif isinstance(op, Lookup) and op.source in taught:
            yield op, "the source is updated after the call; look up before the update"
        if id(op) in after:
            taught.add(op.source)


def _straight(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Ops that run exactly once in a round; a segment follows its own ops."""
    for op in ops:
        if isinstance(op, Segment):
            yield from _straight(op.body.ops)
        yield op


def handed_out(op: Segment) -> Iterator[tuple[Value, Value]]:
    """Names of a segment's results, and of the same values inside it."""
    return zip(op.results, op.body.yields, strict=True)
