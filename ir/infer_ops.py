"""Static types of an op's results, one function per family of ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from specplan.ir import infer_models
from specplan.ir import infer_trees as trees
from specplan.ir.errors import UsageError
from specplan.ir.formula import formula_names, is_condition
from specplan.ir.infer_picks import pick
from specplan.ir.infer_states import check_effect, loaded_type
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
from specplan.ir.plan import Plan
from specplan.ir.rule_error import RuleError
from specplan.ir.scope import expect, look, nodes_of
from specplan.ir.types import (
    FlagType,
    NodesType,
    NumberType,
    PathType,
    RowsType,
    TreeType,
    Type,
    UniformsType,
)
from specplan.ir.values import Value


def infer_op(
    plan: Plan, op: Op, scope: dict[Value, Type], ends: Mapping[str, int]
) -> tuple[Type, ...]:
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
            return infer_models.forward(plan, op, scope, ends)
        case Mix():
            rows = expect(scope, op.rows, RowsType, "mix")
            over = expect(scope, op.over, TreeType, "over")
            trees.check_rows(over, rows, op.rows)
            result = replace(rows, exact=False)
        case Measure():
            held = look(scope, op.operand, "measure") if isinstance(op.operand, Value) else None
            result = NumberType(_tells_of_draws(held))
        case Compute():
            result = _compute(op, scope)
        case Uniform():
            if op.count < 1:
                raise RuleError("size", "uniform needs a count of at least 1")
            result = UniformsType(op.count)
        case Accept():
            result = infer_models.accept(op, scope)
        case Emit():
            result = replace(expect(scope, op.path, PathType, "emit"), emitted=True)
        case Load():
            result = loaded_type(plan.state(op.state), op.state)
        case Commit() | Store() | Update() | Refresh():
            check_effect(plan, op, scope)
            return ()
        case Repeat() | When() | Segment():
            raise RuleError("type", f"{op.keyword} holds a region")
        case _:
            assert_never(op)
    return (result,)


def _tree_op(
    op: Root | Grow | Lookup | Place | Relabel | Graft | Pick, scope: dict[Value, Type]
) -> Type:
    match op:
        case Root():
            return TreeType(rows=op.rows)
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
            new = None if op.rows is None else expect(scope, op.rows, RowsType, "rows")
            at = None if op.at is None else nodes_of(scope, op.at, "at")
            other = None if op.other is None else expect(scope, op.other, TreeType, "other")
            return trees.relabel(op, tree, new, at, other)
        case Graft():
            if not op.trees:
                raise RuleError("arity", "graft needs a tree")
            return trees.graft(op, tuple(expect(scope, t, TreeType, "graft") for t in op.trees))
        case Pick():
            tree = expect(scope, op.tree, TreeType, "pick")
            if op.count is not None:
                expect(scope, op.count, NumberType, "count")
            at = None if op.at is None else nodes_of(scope, op.at, "at")
            return pick(op, tree, at)


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


def _compute(op: Compute, scope: dict[Value, Type]) -> Type:
    given = {key for key, _ in op.operands}
    try:
        read = formula_names(op.formula)
    except UsageError as error:
        raise RuleError("formula", str(error)) from error
    if read != given:
        named = ", ".join(sorted(read ^ given))
        raise RuleError("formula", f"operands are what the formula reads; {named} is not both")
    drawn = False
    for _, name in op.operands:
        held = look(scope, name, "compute")
        if not isinstance(held, NumberType | FlagType):
            raise RuleError("type", f"compute %{name} is not a number")
        drawn = drawn or held.drawn
    return FlagType(drawn) if is_condition(op.formula) else NumberType(drawn)


def _tells_of_draws(held: Type | None) -> bool:
    """Whether what is measured depends on tokens that were drawn in the round."""
    if isinstance(held, TreeType):
        return held.drawn
    if isinstance(held, NodesType | RowsType | PathType):
        return held.lineage is not None and held.lineage.drawn
    return False
