"""Static types of rows that models compute and of paths judged by them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from specplan.ir import infer_trees as trees
from specplan.ir.blocks import Skips
from specplan.ir.ops import Accept, Forward
from specplan.ir.plan import CacheState, Plan, Round, TrackState, walk, walk_plan
from specplan.ir.rule_error import RuleError
from specplan.ir.scope import expect, nodes_of
from specplan.ir.types import PathType, RowsType, TreeType, Type, UniformsType
from specplan.ir.values import Value


def stack_ends(plan: Plan, item: Round) -> dict[str, int]:
    """Per model, the last layer that some forward names: taken to be the end of its stack."""
    ends: dict[str, int] = {}
    for op in chain(walk_plan(plan), walk(item.ops)):
        if isinstance(op, Forward):
            stops = [span.stop for span in op.layers]
            ends[op.model] = max([ends.get(op.model, 0), *stops])
    return ends


def forward(
    plan: Plan, op: Forward, scope: dict[Value, Type], ends: Mapping[str, int]
) -> tuple[Type, ...]:
    """Rows per operand and kind of output.

    Raises:
        RuleError: `ssa`, `type` or `arity`.
    """
    if not op.nodes:
        raise RuleError("arity", "forward needs nodes to run on")
    if isinstance(op.pending, tuple) and len(op.pending) != len(op.nodes):
        raise RuleError("arity", f"{len(op.pending)} pending counts for {len(op.nodes)} operands")
    try:
        Skips.read(op.skip)
    except ValueError as error:
        raise RuleError("type", str(error)) from error
    given = op.gives if op.gives is not None else ("logits",)
    exact = _whole_stack(plan, op, ends)
    rows: list[Type] = []
    for name in op.nodes:
        nodes = nodes_of(scope, name, "forward")
        rows += [RowsType(nodes.width, nodes.indices, nodes.lineage, op.model, exact)] * len(given)
    return tuple(rows)


def _whole_stack(plan: Plan, op: Forward, ends: Mapping[str, int]) -> bool:
    """True when the rows are those of the model's whole stack on its full cache."""
    if op.write != "exact" or op.cache is None or is_reduced(plan, op) or alters_stack(plan, op):
        return False
    if not op.layers:
        return True
    (span, *more) = op.layers
    from_below = op.features is not None or span.start == 0
    return not more and from_below and span.start < span.stop == ends[op.model]


def is_reduced(plan: Plan, op: Forward) -> bool:
    """True when the cache of a forward holds less than the whole text."""
    cache = None if op.cache is None else plan.state(op.cache)
    return isinstance(cache, CacheState) and bool(cache.view or cache.policy or cache.budget)


def alters_stack(plan: Plan, op: Forward) -> bool:
    """True when what a forward computes differs from the model's own stack at those layers."""
    if op.skip or op.only is not None or op.attend != "ancestors":
        return True
    return op.features is not None and not continues_stack(plan, op)


def continues_stack(plan: Plan, op: Forward) -> bool:
    """True when the features are the model's own, of the layer that the forward begins at."""
    track = None if op.features is None else plan.state(op.features)
    if not isinstance(track, TrackState) or track.model != op.model or op.shift != 0:
        return False
    return bool(op.layers) and track.layer == op.layers[0].start


def accept(op: Accept, scope: dict[Value, Type]) -> PathType:
    """The judged path of a tree, or of what hangs below some of its nodes.

    Raises:
        RuleError: `ssa`, `type` or `lineage`.
    """
    tree = expect(scope, op.tree, TreeType, "accept")
    exact = False
    if op.target is not None:
        rows = expect(scope, op.target, RowsType, "target")
        trees.check_rows(tree, rows, op.target)
        exact = rows.exact and rows.model == "target"
    if op.by is not None:
        expect(scope, op.by, UniformsType, "by")
    nodes, depth = tree.nodes, tree.depth
    if op.at is not None:
        at = nodes_of(scope, op.at, "at")
        trees.check_nodes(tree, at, op.at)
        nodes -= at.seen
        depth = min(depth, nodes)
    return PathType(
        depth=depth, nodes=nodes, rule=op.rule, exact=exact, law=op.law, target=op.target,
        whole=op.at is None, chain=tree.is_chain, dropped_draws=tree.dropped_draws, rows=tree.rows,
        lineage=tree.lineage,
    )  # fmt: skip
