"""Static types of what is carried from round to round."""

from __future__ import annotations

from specplan.ir.errors import RuleError
from specplan.ir.plan import Plan, SourceState, ValueState
from specplan.ir.types.bounds import check_tree_size
from specplan.ir.types.value_types import ROOT, NumberType, TreeType
from specplan.ir.values import State


def loaded_type(state: object, name: str) -> TreeType | NumberType:
    """The type that `load` gives for a value state.

    Raises:
        RuleError: `state` when it is none, or declares a tree that cannot be; `size`.
    """
    if not isinstance(state, ValueState):
        raise RuleError("state", f"@{name} is not a value state")
    kind = state.kind
    if kind.name in ("number", "calibrated"):
        return NumberType(calibrated=kind.name == "calibrated")
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
        origins=frozenset({"draw" if state.keeps_probs else "given"}),
        siblings=frozenset({"draw"} if state.keeps_probs and not chain else ()),
    )  # fmt: skip
    if kind.get("how", "given") not in ("given", "draw"):
        raise RuleError("state", f"@{name}: how= must be given or draw")
    if not min(nodes, 1) <= depth <= nodes:
        raise RuleError("state", f"@{name}: depth= must be from 1 to nodes={nodes}, not {depth}")
    if parents:
        ordered = all(ROOT <= parent < node for node, parent in enumerate(parents))
        if (parents != given and not chain) or len(parents) != nodes or not ordered:
            raise RuleError(
                "state", f"@{name}: parents= needs an earlier node, or -1, for each node"
            )
        if max(tree.depths or (0,)) != depth:
            raise RuleError("state", f"@{name}: depth={depth} does not agree with parents=")
    return tree


def with_source(keyword: str, plan: Plan, source: State) -> str:
    """The name of an op on a source in device profiles: `lookup:ngram`; `lookup` for the text."""
    state = plan.state(source)
    return f"{keyword}:{state.kind.name}" if isinstance(state, SourceState) else keyword
