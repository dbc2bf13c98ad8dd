"""Rules about what is promised of the output's law."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.ops import (
    Accept,
    Adopt,
    Emit,
    Forward,
    Graft,
    Lookup,
    Op,
    Relabel,
    Reroot,
    Store,
    Update,
)
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.infer import RoundTypes, Step
from specplan.ir.types.state_types import loaded_type
from specplan.ir.types.value_types import Lineage, PathType, TreeType, Type
from specplan.ir.values import Range, State, Value

Finding = tuple[Op | None, str]


def lossless(plan: Plan, types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """A plan that promises a law emits only what keeps it."""
    promise = plan.assumptions.law.name
    if promise not in _ROWS:
        return
    for step in types.steps:
        op = step.op
        path = step.reads[op.path] if isinstance(op, Emit | Adopt) else None
        if not isinstance(path, PathType) or (isinstance(op, Adopt) and op.logits is None):
            continue
        for what in _changes_law(plan, path, tables):
            yield op, what + _SAY_SO
        fact, what = _ROWS[promise]
        if isinstance(op, Emit) and not getattr(path, fact):
            yield op, what + _SAY_SO
    for kept, what in carried_draws(plan, types):
        yield kept, what + _SAY_SO
    if promise == "bounded":  # the risk was tested with the plan's own caches
        return
    target = [op for op in walk_plan(plan) if isinstance(op, Forward) and op.model == "target"]
    fed = {
        op.features
        for op in target
        if op.features is not None and op.cache is not None and op.write == "exact"
    }
    for op in dict.fromkeys(step.op for step in types.steps):
        if isinstance(op, Forward) and op.model == "target" and _pollutes(plan, op, fed):
            yield op, "leaves states of the target that are not its own" + _SAY_SO


_SAY_SO = "; say assume law=free"
_ROWS = {
    "target": ("exact", "the judging rows are not the target's exact ones"),
    "stated": ("stated", "the judging rows are not those of whole models"),
    "bounded": ("bounded", "no calibrated flag decides between exact rows and others"),
}
"""Per promise, what must hold of a path that is emitted, and what to say where it does not."""


def _changes_law(plan: Plan, path: PathType, tables: Tables) -> Iterator[str]:
    rule = tables.find("rule", path.rule.name)
    if rule is None:
        return
    hottest = plan.assumptions.temperature or 0.0
    if isinstance(hottest, Range):
        hottest = hottest.high
    if rule.lossless == "never":
        yield f"rule {rule.name} changes the law"
    if rule.lossless == "greedy" and hottest > 0:
        yield f"rule {rule.name} keeps the law at temperature 0 only, not at {hottest}"
    if rule.lossless == "always" and rule.reads_probs and path.dropped_draws:
        yield "drawn nodes were dropped by a choice that looked at them"


def _pollutes(plan: Plan, op: Forward, fed: set[State]) -> bool:
    """True when a forward of the target leaves other keys, values or features than its stack's."""
    if op.keep in fed:
        whole = not op.layers
        lower = len(op.layers) == 1 and (op.layers[0].start == 0 or op.features is not None)
        own = (whole or lower) and not op.alters_stack(plan) and not op.is_reduced(plan)
        if not own or op.write != "exact":
            return True
    if op.write != "exact" or op.cache is None or op.is_reduced(plan):
        return False
    return op.alters_stack(plan)


def carried_draws(plan: Plan, types: RoundTypes) -> Iterator[Finding]:
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
