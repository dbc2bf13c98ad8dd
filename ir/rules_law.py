"""Rules about what is promised: the target's law, draws, uniforms, probes."""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.infer import RoundTypes
from specplan.ir.infer_trees import child_counts
from specplan.ir.ops import Accept, Emit, Grow, Op
from specplan.ir.plan import Plan
from specplan.ir.scope import nodes_of
from specplan.ir.tables import Tables
from specplan.ir.types import PathType, TreeType, UniformsType

Finding = tuple[Op | None, str]


def lossless(plan: Plan, types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """A plan that promises the target's law emits only what keeps it."""
    if not plan.assumptions.lossless:
        return
    for step in types.steps:
        op = step.op
        if not isinstance(op, Emit):
            continue
        path = step.reads[op.path]
        if not isinstance(path, PathType):
            continue
        rule = tables.find("rule", path.rule.name)
        if rule is not None and rule.lossless == "never":
            yield op, f"rule {path.rule.name} changes the law; say assume lossless=false"
        elif not path.exact:
            yield op, "the judging rows are not the target's exact ones; say assume lossless=false"
        elif path.dropped_draws and rule is not None and rule.lossless == "always":
            yield op, "drawn nodes were dropped by a choice that looked at them"


def rule_fits(types: RoundTypes, tables: Tables) -> Iterator[Finding]:
    """A rule gets the tree shape and the uniforms it needs."""
    for step in types.steps:
        op = step.op
        if not isinstance(op, Accept):
            continue
        rule = tables.find("rule", op.rule.name)
        tree = step.reads[op.tree]
        if rule is None or not isinstance(tree, TreeType):
            continue
        if rule.chain_only and tree.is_chain is not True:
            yield op, f"rule {rule.name} judges chains, and %{op.tree} may branch"
        if rule.uniforms_per_node is not None:
            needed = rule.uniforms_per_node * _judged(op, step.gives, tree) + 1
            given = step.reads[op.by] if op.by is not None else None
            if not isinstance(given, UniformsType) or given.count < needed:
                yield op, f"rule {rule.name} needs by= with {needed} uniforms"
        elif op.by is not None:
            yield op, f"rule {rule.name} draws nothing; leave by= out"


def _judged(op: Accept, gives: tuple[object, ...], tree: TreeType) -> int:
    path = gives[0]
    return path.depth if op.at is not None and isinstance(path, PathType) else tree.nodes


def draws(types: RoundTypes) -> Iterator[Finding]:
    """Drawn children get one uniform each, ranked ones get none."""
    for step in types.steps:
        op = step.op
        if not isinstance(op, Grow):
            continue
        if op.how == "best":
            if op.by is not None:
                yield op, "ranked children draw nothing; leave by= out"
            continue
        counts = child_counts(op.children, nodes_of(step.reads, op.at, "at"))
        given = step.reads[op.by] if op.by is not None else None
        if not isinstance(given, UniformsType) or given.count < sum(counts):
            yield op, f"how={op.how} needs by= with {sum(counts)} uniforms"


def probes(types: RoundTypes) -> Iterator[Finding]:
    """Probe tokens are never judged: they are no draft."""
    for step in types.steps:
        op = step.op
        if isinstance(op, Accept):
            tree = step.reads[op.tree]
            if isinstance(tree, TreeType) and tree.probes:
                yield op, f"%{op.tree} still holds probes; relabel or prune them first"
