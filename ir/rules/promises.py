"""Rules behind `assume law=`: the output has the promised distribution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    """A plan that promises a distribution emits only tokens that follow it."""
    promise = plan.assumptions.law.name
    if promise not in _REQUIRED:
        return
    for step in types.steps:
        op = step.op
        path = step.reads[op.path] if isinstance(op, Emit | Adopt) else None
        if not isinstance(path, PathType) or (isinstance(op, Adopt) and op.logits is None):
            continue
        for what in _changes_distribution(plan, path, tables):
            yield op, what + _SAY_SO
        fact, what = _REQUIRED[promise]
        if isinstance(op, Emit) and not getattr(path, fact):
            yield op, what + _SAY_SO
    for storing, what in carried_draws(plan, types):
        yield storing, what + _SAY_SO
    if promise == "bounded":  # the risk was tested with the caches as this plan fills them
        return
    target = [op for op in walk_plan(plan) if isinstance(op, Forward) and op.model == "target"]
    fed = {
        op.features
        for op in target
        if op.features is not None and op.cache is not None and op.write == "exact"
    }
    for op in dict.fromkeys(step.op for step in types.steps):
        if isinstance(op, Forward) and op.model == "target" and _pollutes(plan, op, fed):
            yield (
                op,
                "writes keys, values or features that the target's own stack would not"
                "; use write=scratch" + _SAY_SO,
            )


_SAY_SO = ", or declare assume law=free"
_REQUIRED = {
    "target": ("exact", "the path was judged by logits that are not the target's exact ones"),
    "stated": ("stated", "the path was judged by logits that no whole model computed"),
    "bounded": ("bounded", "no flag of a calibrated number selects exact logits or others"),
}
"""Per promise, the field of an emitted path that must be true, and the message where it is not."""


def _changes_distribution(plan: Plan, path: PathType, tables: Tables) -> Iterator[str]:
    rule = tables.find("rule", path.rule.name)
    if rule is None:
        return
    hottest = plan.assumptions.temperature or 0.0
    if isinstance(hottest, Range):
        hottest = hottest.high
    if rule.lossless == "never":
        yield f"rule {rule.name} changes the output distribution; use another rule"
    if rule.lossless == "greedy" and hottest > 0:
        yield f"rule {rule.name} is exact at temperature 0 only, and the plan allows {hottest}"
    if rule.lossless == "always" and rule.reads_probs and path.dropped_draws:
        yield f"drawn nodes were dropped by their scores or values, which biases rule {rule.name}"


def _pollutes(plan: Plan, op: Forward, fed: set[State]) -> bool:
    """Whether a forward of the target leaves other keys, values or features than its own stack."""
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
    """Drawn nodes stored for a later round are independent of everything this round did.

    They are neither judged twice, nor chosen by their tokens, nor known to a source.
    """
    yield from _looked_up(types)
    used, copied = _used_trees(types)
    for step in types.steps:
        op = step.op
        if isinstance(op, Reroot) and _share(copied, step.reads[op.tree]):
            used += _lineages(step.gives)  # the copies may decide which nodes are left
        if not isinstance(op, Store):
            continue
        tree, room = step.reads[op.value], loaded_type(plan.state(op.state), op.state)
        if not isinstance(tree, TreeType) or not isinstance(room, TreeType) or not room.drawn:
            continue
        if tree.dropped_draws:
            yield (
                op,
                "stored nodes were drawn, and chosen by their scores or tokens; store all of them",
            )
        if _share(used, tree):
            yield (
                op,
                "stored nodes were drawn, and judged, grafted, copied or learned in this round",
            )


def _looked_up(types: RoundTypes) -> Iterator[Finding]:
    """No source is looked up after it learned nodes that were drawn in the same round."""
    taught: set[State] = set()
    for step in types.steps:
        op = step.op
        if isinstance(op, Lookup) and op.source in taught:
            yield (
                op,
                f"@{op.source} learned drawn nodes in this round; put the lookup before the update",
            )
        if isinstance(op, Update):
            tree = step.reads[op.tree]
            taught |= {op.source} if isinstance(tree, TreeType) and tree.drawn else set()


def _used_trees(types: RoundTypes) -> tuple[list[Lineage], list[Lineage]]:
    """Trees that were judged, grafted, copied or learned, and of these the latter two."""
    used: list[Lineage] = []
    copied: list[Lineage] = []
    for step in types.steps:
        trees = _lineages([step.reads[name] for name in _read(step)])
        used += trees
        copied += trees if isinstance(step.op, Relabel | Update) else []
    return used, copied


def _read(step: Step) -> list[Value]:
    match step.op:
        case Accept() | Update() as op:
            return [op.tree]
        case Graft() as op:
            return [*op.trees]
        case Relabel() as op:
            return [op.tree] if op.other is None else [op.tree, op.other]
    return []


def _lineages(types: Iterable[Type]) -> list[Lineage]:
    return [one.lineage for one in types if isinstance(one, TreeType) and one.lineage is not None]


def _share(lineages: list[Lineage], tree: Type) -> bool:
    """Whether a tree has nodes in common with others."""
    if not isinstance(tree, TreeType) or tree.lineage is None:
        return False
    common = (one.common(tree.lineage) for one in lineages)
    return any(one is not None and one.nodes > 0 for one in common)
