"""Rounds whose chain a draft model and a source draft in turns, read off their ops."""

from __future__ import annotations

from specplan.cost_models.acceptance.turns import Leg
from specplan.ir.infer import RoundTypes
from specplan.ir.ops import (
    Accept,
    Adopt,
    Commit,
    Emit,
    Forward,
    Grow,
    Lookup,
    Pick,
    Root,
    Uniform,
    Update,
)
from specplan.ir.types import TreeType

_OPS = (Root, Grow, Lookup, Pick, Forward, Uniform, Accept, Adopt, Emit, Commit, Update)


def read_legs(types: RoundTypes) -> tuple[Leg, ...] | None:
    """Who drafts which stretch of a round's chain; None where no model and source take turns.

    Tokens that a source gives are judged by the model where an `accept` below a tip follows, and
    else by the target alone.
    """
    if not all(isinstance(step.op, _OPS) for step in types.steps):
        return None
    legs: list[Leg] = []
    for step in types.steps:
        op, given = step.op, next(iter(step.gives), None)
        if isinstance(op, Grow | Lookup):
            before = step.reads[op.tree]
            assert isinstance(before, TreeType) and isinstance(given, TreeType)
            alone = op.children in (1, (1,)) and given.is_chain
            if not alone or (isinstance(op, Grow) and given.nodes != before.nodes + 1):
                return None
            legs.append(Leg("model", 1) if isinstance(op, Grow) else Leg("source", op.length))
        elif isinstance(op, Accept) and op.at is not None:
            if not legs or legs[-1].by != "source":
                return None
            legs[-1] = Leg("judged", legs[-1].tokens)
    models = {step.op.model for step in types.steps if isinstance(step.op, Forward)}
    taken = {leg.by for leg in legs}
    both = "judged" in taken or {"model", "source"} <= taken
    return tuple(legs) if both and len(models) == 2 else None
