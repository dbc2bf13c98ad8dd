"""Drawn nodes that wait for a later round: nothing may tell of them before they are judged."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.ops import Accept, Graft, Lookup, Op, Relabel, Reroot, Store, Update
from specplan.ir.plan import Plan
from specplan.ir.types.infer import RoundTypes, Step
from specplan.ir.types.state_types import loaded_type
from specplan.ir.types.value_types import Lineage, TreeType, Type
from specplan.ir.values import State, Value

Finding = tuple[Op | None, str]


def kept_draws(plan: Plan, types: RoundTypes) -> Iterator[Finding]:
    """Drawn nodes are neither judged twice, nor chosen or told of by what they are."""
    yield from _looked_up(types)
    told, copied = _told(types)
    for step in types.steps:
        op = step.op
        if isinstance(op, Reroot) and _share(copied, step.reads[op.tree]):
            told += _lineages(step.gives)  # what is left may have been chosen by what it is
        if not isinstance(op, Store):
            continue
        tree, room = step.reads[op.value], loaded_type(plan.state(op.state), op.state)
        if not isinstance(tree, TreeType) or not isinstance(room, TreeType) or not room.drawn:
            continue
        if tree.dropped_draws:
            yield op, "drawn nodes are kept by a choice that looked at them"
        if _share(told, tree):
            yield op, "drawn nodes are kept that were judged, joined, copied or learned"


def _looked_up(types: RoundTypes) -> Iterator[Finding]:
    """Sources that were taught drawn nodes know them."""
    taught: set[State] = set()
    for step in types.steps:
        op = step.op
        if isinstance(op, Lookup) and op.source in taught:
            yield op, f"@{op.source} was taught drawn nodes in this round; look up before"
        if isinstance(op, Update):
            tree = step.reads[op.tree]
            taught |= {op.source} if isinstance(tree, TreeType) and tree.drawn else set()


def _told(types: RoundTypes) -> tuple[list[Lineage], list[Lineage]]:
    """Trees whose tokens something else has, and of these the copied and learned ones."""
    told: list[Lineage] = []
    copied: list[Lineage] = []
    for step in types.steps:
        trees = _lineages([step.reads[name] for name in _read(step)])
        told += trees
        copied += trees if isinstance(step.op, Relabel | Update) else []
    return told, copied


def _read(step: Step) -> list[Value]:
    match step.op:
        case Accept() | Update() as op:
            return [op.tree]
        case Graft() as op:
            return [*op.trees]
        case Relabel() as op:
            return [op.tree] if op.other is None else [op.tree, op.other]
    return []


def _lineages(held: list[Type] | tuple[Type, ...]) -> list[Lineage]:
    return [one.lineage for one in held if isinstance(one, TreeType) and one.lineage is not None]


def _share(lineages: list[Lineage], tree: Type) -> bool:
    """Whether a tree has nodes in common with others."""
    if not isinstance(tree, TreeType) or tree.lineage is None:
        return False
    common = (one.common(tree.lineage) for one in lineages)
    return any(one is not None and one.nodes > 0 for one in common)
