"""Ops of a round that the host runs before its one call, and those it runs after it; no torch.

What is looked up in texts, and below what was looked up, hangs on nothing that a model computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.capabilities import Refusal
from specplan.ir.infer import infer_round
from specplan.ir.ops import Lookup, Op, Pick, Root, Segment, Update
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.printer import print_op
from specplan.ir.scope import nodes_of
from specplan.ir.values import State, Value


def host_ops(item: Round) -> tuple[tuple[Op, ...], tuple[Update, ...]]:
    """What the host does around the call, each in program order.

    Returns:
        What runs first: roots, lookups, named nodes of what was looked up, and what sources are
        taught of all that, none of it in a loop or under a condition, and segments that hand out
        some of it, after their ops; nothing where nothing is looked up or taught. And what sources
        are taught once the round has run, of judged rows and drafted runs, and whatever follows.
    """
    known: set[Value] = set()
    before: list[Op] = []
    after: list[Update] = []
    later: set[State] = set()
    for op in _straight(item.ops):
        if isinstance(op, Segment):
            handed = {out for out, own in handed_out(op) if own in known}
            before += [op] if handed else []
            known |= handed
        elif isinstance(op, Update) and (op.source in later or not _runs_there(op, known)):
            after.append(op)
            later.add(op.source)
        elif _runs_there(op, known):
            before.append(op)
            known.update(op.results)
    if not any(isinstance(op, Lookup | Update) for op in before):
        before = []
    return tuple(before), tuple(after)


def host_refusals(plan: Plan, backend: str) -> Iterator[Refusal]:
    """Lookups and updates that cannot stand before or after a round's one call."""
    for item in plan.rounds:
        before, after = (set(map(id, ops)) for ops in host_ops(item))
        unknown = _of_data(plan, item)
        taught: set[State] = set()
        for op in walk(item.ops):
            if not isinstance(op, Lookup | Update):
                continue
            reason = None
            if id(op) not in before | after:
                reason = "what a model drafted is not looked up, and nothing is taught in a loop"
            elif isinstance(op, Lookup) and id(op) in unknown:
                reason = "the host looks up below nodes that are the same for all requests"
            elif isinstance(op, Lookup) and op.source in taught:
                reason = "drafts and rows are learned when the round has run: look up before"
            if reason:
                yield Refusal(backend, print_op(op), reason)
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


def _of_data(plan: Plan, item: Round) -> set[int]:
    """Identities of the lookups below nodes that data chooses."""
    if not any(isinstance(op, Lookup) for op in walk(item.ops)):
        return set()
    steps = infer_round(plan, item).steps
    lookups = ((step.op, step.reads) for step in steps if isinstance(step.op, Lookup))
    return {id(op) for op, reads in lookups if nodes_of(reads, op.at, "at").indices is None}


def _runs_there(op: Op, known: set[Value]) -> bool:
    """Whether the host can run an op on what it knows."""
    if not _reads(op) <= known:
        return False
    if isinstance(op, Pick):
        return op.best is None and op.at is None
    return isinstance(op, Root | Lookup) or (isinstance(op, Update) and op.logits is None)


def _reads(op: Op) -> set[Value]:
    """Values that the op reads, of the ops that may run on the host."""
    match op:
        case Lookup():
            return {op.tree, op.at}
        case Pick() | Update():
            return {op.tree}
    return set()
