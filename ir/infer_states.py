"""Static types of what is read from states, and checks of what is written to them."""

from __future__ import annotations

from specplan.ir import infer_trees as trees
from specplan.ir.bounds import check_tree_size
from specplan.ir.ops import Commit, Refresh, Store, Update
from specplan.ir.plan import CacheState, Plan, SourceState, ValueState
from specplan.ir.rule_error import RuleError
from specplan.ir.scope import expect
from specplan.ir.types import ROOT, NumberType, PathType, RowsType, TreeType, Type
from specplan.ir.values import Value


def loaded_type(state: object, name: str) -> TreeType | NumberType:
    """What `load` gives for a value state.

    Raises:
        RuleError: `state` when it is none, or declares a tree that cannot be; `size`.
    """
    if not isinstance(state, ValueState):
        raise RuleError("state", f"@{name} is not a value state")
    kind = state.kind
    if kind.name == "number":
        return NumberType()
    nodes, given = kind.integer("nodes", 0), kind.get("parents", ())
    check_tree_size(nodes)
    depth = kind.integer("depth", nodes)
    parents = tuple(p for p in given if type(p) is int) if isinstance(given, tuple) else ()
    chain = not parents and depth == nodes
    if chain:
        parents = tuple(range(-1, nodes - 1))
    tree = TreeType(
        nodes=nodes, depth=depth, parents=parents if chain or parents else None, newest=None,
        newest_count=nodes, ragged=True, chain=chain,
        laws=frozenset({"draw" if state.keeps_laws else "given"}),
    )  # fmt: skip
    if kind.get("law", "point") not in ("point", "drawn"):
        raise RuleError("state", f"@{name}: law is point or drawn")
    if not min(nodes, 1) <= depth <= nodes:
        raise RuleError("state", f"@{name}: {nodes} nodes cannot be {depth} levels deep")
    if parents:
        ordered = all(ROOT <= parent < node for node, parent in enumerate(parents))
        if (parents != given and not chain) or len(parents) != nodes or not ordered:
            raise RuleError("state", f"@{name}: parents= has one earlier node or -1 per node")
        if max(tree.depths or (0,)) != depth:
            raise RuleError("state", f"@{name}: depth={depth} is not that of parents=")
    return tree


def check_effect(
    plan: Plan, op: Commit | Store | Update | Refresh, scope: dict[Value, Type]
) -> None:
    """Refuse operands that do not fit the state they are written to.

    Raises:
        RuleError: `type`, `arity`, `lineage`, `state` or `view`.
    """
    match op:
        case Commit():
            expect(scope, op.path, PathType, "commit")
            if op.alive is not None:
                expect(scope, op.alive, TreeType, "alive")
        case Store():
            kind = type(loaded_type(plan.state(op.state), op.state))
            expect(scope, op.value, kind, "store")
        case Update():
            tree = expect(scope, op.tree, TreeType, "update")
            if (op.rows is None) == (op.last is None):
                raise RuleError("arity", "update takes one of rows= and last=")
            if op.rows is not None:
                rows = expect(scope, op.rows, RowsType, "rows")
                trees.check_rows(tree, rows, op.rows)
            source = plan.state(op.source)
            if isinstance(source, SourceState) and source.scope == "read_only":
                raise RuleError("state", f"@{op.source} is read only")
        case Refresh():
            cache = plan.state(op.state)
            if isinstance(cache, CacheState) and not cache.view:
                raise RuleError("view", f"@{op.state} is no view; there is nothing to rebuild")
