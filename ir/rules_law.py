"""Rules about what is promised: the target's law, draws, uniforms, probes."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.infer import RoundTypes
from specplan.ir.infer_models import alters_stack, is_reduced
from specplan.ir.infer_trees import child_counts
from specplan.ir.ops import Accept, Adopt, Emit, Forward, Grow, Op
from specplan.ir.plan import Plan, walk_plan
from specplan.ir.rules_draws import kept_draws
from specplan.ir.scope import nodes_of
from specplan.ir.tables import Tables
from specplan.ir.types import PathType, TreeType, Type, UniformsType
from specplan.ir.values import Range, State

Finding = tuple[Op | None, str]


def lossless(plan: Plan, types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """A plan that promises the target's law emits only what keeps it."""
    if not plan.assumptions.lossless:
        return
    for step in types.steps:
        op = step.op
        path = step.reads[op.path] if isinstance(op, Emit | Adopt) else None
        if isinstance(path, PathType):
            for what in _changes_law(plan, path, tables):
                yield op, what + _SAY_SO
            if isinstance(op, Emit) and not path.exact:
                yield op, "the judging rows are not the target's exact ones" + _SAY_SO
    for kept, what in kept_draws(plan, types):
        yield kept, what + _SAY_SO
    target = [op for op in walk_plan(plan) if isinstance(op, Forward) and op.model == "target"]
    fed = {op.features for op in target if op.features is not None and op.write == "exact"}
    for op in dict.fromkeys(step.op for step in types.steps):
        if isinstance(op, Forward) and op.model == "target" and _pollutes(plan, op, fed):
            yield op, "leaves states of the target that are not its own" + _SAY_SO


_SAY_SO = "; say assume lossless=false"


def _changes_law(plan: Plan, path: PathType, tables: Tables) -> Iterator[str]:
    rule, law = tables.find("rule", path.rule.name), tables.find("law", path.law.name)
    if rule is None or law is None:
        return
    hottest = plan.assumptions.temperature or 0.0
    if isinstance(hottest, Range):
        hottest = hottest.high
    if rule.lossless == "never":
        yield f"rule {rule.name} changes the law"
    if law.lossless == "never":
        yield f"law {law.name} is not the target's"
    if rule.lossless == "greedy" and hottest > 0:
        yield f"rule {rule.name} keeps the law at temperature 0 only, not at {hottest}"
    if rule.lossless == "always" and rule.reads_laws and path.dropped_draws:
        yield "drawn nodes were dropped by a choice that looked at them"


def _pollutes(plan: Plan, op: Forward, fed: set[State]) -> bool:
    """True when a forward of the target leaves other keys, values or features than its stack's."""
    if op.keep in fed:
        lower = len(op.layers) == 1 and (op.layers[0].start == 0 or op.features is not None)
        if alters_stack(plan, op) or is_reduced(plan, op) or op.write != "exact" or not lower:
            return True
    if op.write != "exact" or op.cache is None or is_reduced(plan, op):
        return False
    return alters_stack(plan, op)


def rule_fits(types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """A rule gets the tree shape, the rows and the uniforms it needs."""
    for step in types.steps:
        op = step.op
        if isinstance(op, Adopt):
            path = step.reads[op.path]
            if isinstance(path, PathType) and path.target not in (None, op.rows):
                yield op, f"adopted nodes follow the rows that judged them, %{path.target}"
        if not isinstance(op, Accept):
            continue
        rule = tables.find("rule", op.rule.name)
        tree = step.reads[op.tree]
        if rule is None or not isinstance(tree, TreeType):
            continue
        if rule.needs_rows != (op.target is not None):
            takes = "needs target=" if rule.needs_rows else "reads no rows; leave target= out"
            yield op, f"rule {rule.name} {takes}"
        if rule.chain_only and not tree.is_chain:
            yield op, f"rule {rule.name} judges chains, and %{op.tree} may branch"
        if rule.children and tree.laws - set(rule.children):
            ways = " or ".join(rule.children)
            yield op, f"rule {rule.name} judges children of how={ways}, and %{op.tree} has others"
        if rule.uniforms_per_node is not None:
            needed = rule.uniforms_per_node * _judged(op, step.gives, tree) + 1
            given = step.reads[op.by] if op.by is not None else None
            if not isinstance(given, UniformsType) or given.count < needed:
                yield op, f"rule {rule.name} needs by= with {needed} uniforms"
        elif op.by is not None:
            yield op, f"rule {rule.name} draws nothing; leave by= out"


def _judged(op: Accept, gives: tuple[Type, ...], tree: TreeType) -> int:
    path = gives[0]
    return path.nodes if op.at is not None and isinstance(path, PathType) else tree.nodes


def draws(types: RoundTypes) -> Iterator[Finding]:
    """Drawn children get one uniform each, shared draws one per level, ranked ones get none."""
    for step in types.steps:
        op = step.op
        if not isinstance(op, Grow):
            continue
        if op.how == "best":
            if op.by is not None:
                yield op, "ranked children draw nothing; leave by= out"
            continue
        (grown,) = step.gives
        needed = sum(child_counts(op.children, nodes_of(step.reads, op.at, "at")))
        if op.how == "shared" and isinstance(grown, TreeType):
            needed = grown.depth  # number d is for all children of nodes at depth d
        given = step.reads[op.by] if op.by is not None else None
        if not isinstance(given, UniformsType) or given.count < needed:
            yield op, f"how={op.how} needs by= with {needed} uniforms"


def probes(types: RoundTypes) -> Iterator[Finding]:
    """Probe tokens are never judged: they are no draft."""
    for step in types.steps:
        op = step.op
        if isinstance(op, Accept):
            tree = step.reads[op.tree]
            if isinstance(tree, TreeType) and tree.probes:
                yield op, f"%{op.tree} still holds probes; relabel or prune them first"
