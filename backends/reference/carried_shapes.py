"""Trees carried from round to round that the reference backend does not hold; no torch."""

from __future__ import annotations

from specplan.ir.infer import RoundTypes, Step
from specplan.ir.ops import Compute, Load, Measure, Pick, Place, Relabel, Reroot, Store, When
from specplan.ir.plan import Plan, Round, walk
from specplan.ir.state_types import loaded_type
from specplan.ir.types import FlagType, LogitsType, NumberType, TreeType

_PURE = (Place, Relabel, Pick, Measure, Compute)
_SHAPE = "trees that are carried on have one shape for all requests"


def carried_reason(plan: Plan, step: Step) -> str | None:
    """Why a step that makes or changes what is carried on cannot run, or None."""
    op = step.op
    if step.conditional and not isinstance(op, _PURE):
        return "under a condition trees are changed and numbers computed, nothing else"
    match op:
        case Load() | Store():
            held = loaded_type(plan.state(op.state), op.state)
            if isinstance(held, TreeType) and held.parents is None:
                return "a tree is carried on where it is a chain, or says its parents="
            if isinstance(held, TreeType) and not held.nodes:
                return "a tree that is carried on has nodes"
            stored = step.reads[op.value] if isinstance(op, Store) else None
            if isinstance(stored, TreeType) and stored.parents is None:
                return _SHAPE
        case Measure():
            rows = [held for held in step.reads.values() if isinstance(held, LogitsType)]
            if any(held.width != 1 for held in rows):
                return "of rows, that of one node is measured"
        case Place():
            return _place(op, step)
        case Relabel():
            trees = [step.reads[name] for name in (op.tree, op.other) if name is not None]
            if any(isinstance(tree, TreeType) and tree.parents is None for tree in trees):
                return _SHAPE
        case Reroot():
            tree = step.reads[op.tree]
            if isinstance(tree, TreeType) and not tree.is_chain:
                return "only chains are cut to what is left below a path"
            if isinstance(tree, TreeType) and tree.drawn and len(tree.laws) > 1:
                return "of nodes that were drawn and others, what is left is not told apart"
    return None


def joined_reason(op: When, types: RoundTypes) -> str | None:
    """Why what a condition chooses from cannot be told request by request, or None."""
    for name in op.results:
        held = types.types[name]
        if not isinstance(held, TreeType | NumberType | FlagType):
            return "a condition chooses among trees and among numbers"
        if isinstance(held, TreeType) and held.parents is None:
            return _SHAPE
    return None


def conditions(item: Round) -> list[When]:
    """All conditions of a round."""
    return [op for op in walk(item.ops) if isinstance(op, When)]


def _place(op: Place, step: Step) -> str | None:
    tree, (placed,) = step.reads[op.tree], step.gives
    assert isinstance(tree, TreeType) and isinstance(placed, TreeType)
    if op.upto is not None and tree.parents is not None and tree.is_chain:
        return None
    if op.upto is not None or placed.parents is None:
        return _SHAPE
    return None
