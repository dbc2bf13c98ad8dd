"""Rounds for texts of which a lookup proposes nothing: they verify the root alone.

The host looks up before a round begins. Where nothing matches, what the whole round would do for
drafted nodes is done for dead ones: plain decoding gives the same token for less.
"""

from __future__ import annotations

from dataclasses import replace

from specplan.ir.op import Op
from specplan.ir.ops import Accept, Commit, Emit, Forward, Lookup, Root, Uniform, Update
from specplan.ir.plan import Plan, Round

_ONLY = (Root, Lookup, Uniform, Forward, Accept, Emit, Commit, Update)
_LAST_IS_BONUS = frozenset({"greedy", "token", "recursive"})
"""Rules of whose numbers the last one draws the bonus token, and nothing else does."""


def proposing(item: Round) -> Lookup | None:
    """The one lookup that drafts for a round; None where something else does, too.

    It begins at the root, and every other op verifies what it proposes.
    """
    lookups = [op for op in item.ops if isinstance(op, Lookup)]
    roots = {value for op in item.ops if isinstance(op, Root) for value in op.results}
    rules = {op.rule.name for op in item.ops if isinstance(op, Accept)}
    if len(lookups) != 1 or not all(isinstance(op, _ONLY) for op in item.ops):
        return None
    return lookups[0] if lookups[0].at in roots and rules <= _LAST_IS_BONUS else None


def undrafted(plan: Plan, name: str) -> Plan:
    """The plan with a round that verifies the root alone.

    The last of its uniform numbers, which draws the bonus token, is the one that is left.

    Args:
        plan: any plan.
        name: of a round that has a lookup `proposing`.
    """
    item = plan.round(name)
    assert proposing(item) is not None, "no such round is needed"
    ops = tuple(map(_without_drafts, item.ops))
    rounds = tuple(replace(one, ops=ops) if one is item else one for one in plan.rounds)
    return replace(plan, rounds=rounds)


def _without_drafts(op: Op) -> Op:
    if isinstance(op, Uniform):
        return replace(op, count=1, offset=op.offset + op.count - 1)
    return Root(results=op.results) if isinstance(op, Lookup) else op
