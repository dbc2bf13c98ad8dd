"""Rules about what is promised of the output's law."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.ops import Adopt, Emit, Forward, Op
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.rules.draws import kept_draws
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.infer import RoundTypes
from specplan.ir.types.value_types import PathType
from specplan.ir.values import Range, State

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
    for kept, what in kept_draws(plan, types):
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
    if rule.lossless == "always" and rule.reads_laws and path.dropped_draws:
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
