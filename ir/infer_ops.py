"""Static types of an op's results, one function per family of ops."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from specplan.ir import infer_trees as trees
from specplan.ir.formula import formula_names, is_condition
from specplan.ir.ops import (
    Accept,
    Adopt,
    Commit,
    Compute,
    Emit,
    Forward,
    Graft,
    Grow,
    Load,
    Lookup,
    Measure,
    Mix,
    Op,
    Pick,
    Place,
    Prune,
    Refresh,
    Relabel,
    Repeat,
    Reroot,
    Root,
    Segment,
    Store,
    Uniform,
    Update,
    When,
)
from specplan.ir.plan import CacheState, Plan, ValueState
from specplan.ir.rule_error import RuleError
from specplan.ir.scope import expect, look, nodes_of, operands
from specplan.ir.types import (
    FlagType,
    NumberType,
    PathType,
    RowsType,
    TreeType,
    Type,
    UniformsType,
)
from specplan.ir.values import Value

LARGEST_TREE = 1 << 14


def infer_op(plan: Plan, op: Op, scope: dict[Value, Type]) -> tuple[Type, ...]:
    """Types of an op's results; regions are the walk's business.

    Raises:
        RuleError: when an operand is missing or of another kind, or the rule of the op is broken.
    """
    match op:
        case Root() | Grow() | Lookup() | Place() | Relabel() | Graft() | Pick():
            result: Type = _tree_op(op, scope)
        case Prune() | Reroot() | Adopt():
            result = _reshaped(op, scope)
        case Forward():
            return _forward(plan, op, scope)
        case Mix():
            rows = expect(scope, op.rows, RowsType, "mix")
            expect(scope, op.over, TreeType, "over")
            result = replace(rows, exact=False)
        case Measure():
            if isinstance(op.operand, Value):
                look(scope, op.operand, "measure")
            result = NumberType()
        case Compute():
            result = _compute(op, scope)
        case Uniform():
            if op.count < 1:
                raise RuleError("size", "uniform needs a count of at least 1")
            result = UniformsType(op.count)
        case Accept():
            result = _accept(op, scope)
        case Emit():
            result = replace(expect(scope, op.path, PathType, "emit"), emitted=True)
        case Load():
            result = _load(plan, op)
        case Commit() | Store() | Update() | Refresh():
            for name in operands(op):
                look(scope, name, op.keyword)
            return ()
        case Repeat() | When() | Segment():
            raise RuleError("type", f"{op.keyword} holds a region")
        case _:
            assert_never(op)
    if isinstance(result, TreeType) and result.nodes > LARGEST_TREE:
        raise RuleError("size", f"a tree of {result.nodes} nodes; at most {LARGEST_TREE}")
    return (result,)


def _tree_op(
    op: Root | Grow | Lookup | Place | Relabel | Graft | Pick, scope: dict[Value, Type]
) -> Type:
    match op:
        case Root():
            return TreeType(rows=op.rows, lineage=frozenset())
        case Grow():
            tree = expect(scope, op.tree, TreeType, "grow")
            rows = expect(scope, op.rows, RowsType, "rows")
            if op.by is not None:
                expect(scope, op.by, UniformsType, "by")
            return trees.grow(op, tree, nodes_of(scope, op.at, "at"), rows)
        case Lookup():
            tree = expect(scope, op.tree, TreeType, "lookup")
            return trees.lookup(op, tree, nodes_of(scope, op.at, "at"))
        case Place():
            tree = expect(scope, op.tree, TreeType, "place")
            return trees.place(op, tree, nodes_of(scope, op.at, "at"))
        case Relabel():
            tree = expect(scope, op.tree, TreeType, "relabel")
            if op.rows is not None:
                expect(scope, op.rows, RowsType, "rows")
            if op.at is not None:
                nodes_of(scope, op.at, "at")
            other = None if op.other is None else expect(scope, op.other, TreeType, "other")
            return trees.relabel(op, tree, other)
        case Graft():
            if not op.trees:
                raise RuleError("arity", "graft needs a tree")
            return trees.graft(op, tuple(expect(scope, t, TreeType, "graft") for t in op.trees))
        case Pick():
            tree = expect(scope, op.tree, TreeType, "pick")
            if op.count is not None:
                expect(scope, op.count, NumberType, "count")
            at = None if op.at is None else nodes_of(scope, op.at, "at")
            return trees.pick(op, tree, at)


def _reshaped(op: Prune | Reroot | Adopt, scope: dict[Value, Type]) -> TreeType:
    tree = expect(scope, op.tree, TreeType, op.keyword)
    match op:
        case Prune():
            return trees.prune(op, tree, nodes_of(scope, op.to, "to"))
        case Reroot():
            expect(scope, op.path, PathType, "reroot")
            return trees.reroot(op, tree)
        case Adopt():
            path = expect(scope, op.path, PathType, "adopt")
            return trees.adopt(op, tree, path, expect(scope, op.rows, RowsType, "rows"))


def _forward(plan: Plan, op: Forward, scope: dict[Value, Type]) -> tuple[Type, ...]:
    if not op.nodes:
        raise RuleError("arity", "forward needs nodes to run on")
    if isinstance(op.pending, tuple) and len(op.pending) != len(op.nodes):
        raise RuleError("arity", f"{len(op.pending)} pending counts for {len(op.nodes)} operands")
    given = op.gives if op.gives is not None else ("logits",)
    exact = _whole_stack(plan, op)
    rows: list[Type] = []
    for name in op.nodes:
        nodes = nodes_of(scope, name, "forward")
        rows += [RowsType(nodes.width, nodes.indices, nodes.lineage, op.model, exact)] * len(given)
    return tuple(rows)


def _whole_stack(plan: Plan, op: Forward) -> bool:
    """True when the rows are those of the model's whole stack on its full cache."""
    if op.write != "exact" or op.skip or op.only is not None or op.attend != "ancestors":
        return False
    if op.cache is not None:
        cache = plan.state(op.cache)
        if isinstance(cache, CacheState) and cache.view is not None:
            return False
    if op.layers:
        reached = len(op.layers) == 1 and op.layers[0].start < op.layers[0].stop
        return op.features is not None and reached
    return op.cache is not None


def _compute(op: Compute, scope: dict[Value, Type]) -> Type:
    given = {key for key, _ in op.operands}
    missing = formula_names(op.formula) - given
    if missing:
        raise RuleError("formula", f"the formula reads {', '.join(sorted(missing))}, not given")
    for _, name in op.operands:
        if not isinstance(look(scope, name, "compute"), NumberType | FlagType):
            raise RuleError("type", f"compute %{name} is not a number")
    return FlagType() if is_condition(op.formula) else NumberType()


def _accept(op: Accept, scope: dict[Value, Type]) -> PathType:
    tree = expect(scope, op.tree, TreeType, "accept")
    exact = False
    if op.target is not None:
        rows = expect(scope, op.target, RowsType, "target")
        trees.check_lineage(tree, rows.lineage, f"rows %{op.target}")
        exact = rows.exact and rows.model == "target"
    if op.by is not None:
        expect(scope, op.by, UniformsType, "by")
    nodes, depth = tree.nodes, tree.depth
    if op.at is not None:
        at = nodes_of(scope, op.at, "at")
        nodes -= at.seen
        depth = min(depth, nodes)
    return PathType(
        depth=depth, nodes=nodes, rule=op.rule, exact=exact, chain=tree.is_chain is True,
        dropped_draws=tree.dropped_draws, laws=tree.laws, rows=tree.rows,
    )  # fmt: skip


def _load(plan: Plan, op: Load) -> Type:
    state = plan.state(op.state)
    if not isinstance(state, ValueState):
        raise RuleError("state", f"@{op.state} is not a value state")
    if state.kind.name == "number":
        return NumberType()
    nodes = state.kind.integer("nodes", 0)
    given = state.kind.get("parents", ())
    parents = tuple(int(p) for p in given if isinstance(p, int)) if isinstance(given, tuple) else ()
    depth = state.kind.integer("depth", nodes)
    if not parents and depth == nodes:
        parents = tuple(range(-1, nodes - 1))
    law = state.kind.get("law", "point")
    return TreeType(
        nodes=nodes, depth=depth, parents=parents or (None if nodes else ()), newest=None,
        newest_count=nodes, ragged=True, laws=frozenset({"draw" if law == "drawn" else "given"}),
    )  # fmt: skip
