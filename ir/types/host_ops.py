"""Ops of a round that the host runs before its one call, and those it runs after it; no torch.

What is looked up in texts, and below what was looked up, hangs on nothing that a model computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.op import Op
from specplan.ir.ops import Lookup, Segment, Update
from specplan.ir.plan import Round, walk
from specplan.ir.types.scope import operands
from specplan.ir.values import State, Value

ON_THE_HOST = frozenset({"root", "lookup", "pick", "prune", "place", "relabel", "graft", "update"})
"""Keywords of ops that run there, where all that they read is known there."""


def host_ops(item: Round) -> tuple[tuple[Op, ...], tuple[Update, ...]]:
    """What the host does around the call, each in program order.

    Returns:
        What runs first: lookups, what sources are taught that no model computes, and the ops that
        they hang on, none of it in a loop or under a condition; segments that hand out some of it
        stand after their ops. And what sources are taught once the round has run, of judged rows
        and drafted runs, and whatever follows.
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
    """Lookups and updates, and what they hang on."""
    wanted: set[Value] = set()
    found: list[Op] = []
    for op in reversed(ops):
        if isinstance(op, Segment):
            handed = {own for out, own in handed_out(op) if out in wanted}
            wanted |= handed
            found += [op] if handed else []
        elif isinstance(op, Lookup | Update) or not wanted.isdisjoint(op.results):
            wanted.update(operands(op))
            found.append(op)
    return found[::-1]


def misplaced(item: Round) -> Iterator[tuple[Op, str]]:
    """Lookups and updates that cannot stand before or after a round's one call, and why."""
    before, after = (set(map(id, ops)) for ops in host_ops(item))
    taught: set[State] = set()
    for op in walk(item.ops):
        if not isinstance(op, Lookup | Update):
            continue
        if id(op) not in before | after:
            yield op, "what a model drafted is not looked up, and nothing is taught in a loop"
        elif isinstance(op, Lookup) and op.source in taught:
            yield op, "drafts and rows are learned when the round has run: look up before"
        if id(op) in after:
            taught.add(op.source)


def _straight(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Ops that run once in a round, whatever it holds; a segment comes after its own."""
    for op in ops:
        if isinstance(op, Segment):
            yield from _straight(op.body.ops)
        yield op


def handed_out(op: Segment) -> Iterator[tuple[Value, Value]]:
    """What a segment gives, and what it is called in there."""
    return zip(op.results, op.body.yields, strict=True)
