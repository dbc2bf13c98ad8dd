"""Ops of a round that the host runs before its one call, and those it runs after it; no torch.

What is looked up in texts, and below what was looked up, hangs on nothing that a model computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.capabilities import Refusal
from specplan.ir.ops import Lookup, Op, Pick, Root, Segment, Update
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.printer import print_op
from specplan.ir.values import State, Value


def host_ops(item: Round) -> tuple[tuple[Op, ...], tuple[Update, ...]]:
    """What the host does around the call, each in program order.

    Returns:
        What runs first: roots, lookups, named nodes of what was looked up, and what sources are
        taught of all that, none of it in a loop or under a condition; nothing where nothing is
        looked up or taught. And what sources are taught of judged rows and drafted runs, once the
        round has run.
    """
    known: set[Value] = set()
    before: list[Op] = []
    after: list[Update] = []
    for op in _straight(item.ops):
        if _reads(op) <= known and _runs_there(op):
            before.append(op)
            known.update(op.results)
        elif isinstance(op, Update):
            after.append(op)
    if not any(isinstance(op, Lookup | Update) for op in before):
        before = []
    return tuple(before), tuple(after)


def host_refusals(plan: Plan, backend: str) -> Iterator[Refusal]:
    """Lookups and updates that cannot stand before or after a round's one call."""
    for item in plan.rounds:
        before, after = (set(map(id, ops)) for ops in host_ops(item))
        taught: set[State] = set()
        for op in walk(item.ops):
            if not isinstance(op, Lookup | Update):
                continue
            reason = None
            if id(op) not in before | after:
                reason = "what a model drafted is not looked up, and nothing is taught in a loop"
            elif isinstance(op, Lookup) and op.source in taught:
                reason = "drafts and rows are learned when the round has run: look up before"
            if reason:
                yield Refusal(backend, print_op(op), reason)
            if id(op) in after:
                taught.add(op.source)


def _straight(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Ops that run once in a round, whatever it holds."""
    for op in ops:
        yield op
        if isinstance(op, Segment):
            yield from _straight(op.body.ops)


def _runs_there(op: Op) -> bool:
    if isinstance(op, Pick):
        return op.best is None and op.at is None
    return isinstance(op, Root | Lookup) or (isinstance(op, Update) and op.rows is None)


def _reads(op: Op) -> set[Value]:
    """Values that the op reads, of the ops that may run on the host."""
    match op:
        case Lookup():
            return {op.tree, op.at}
        case Pick() | Update():
            return {op.tree}
    return set()
