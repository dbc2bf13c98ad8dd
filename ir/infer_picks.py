"""Static types of the op that chooses nodes of a tree."""

from __future__ import annotations

from specplan.ir.infer_trees import check_nodes
from specplan.ir.ops import Pick
from specplan.ir.rule_error import RuleError
from specplan.ir.types import ROOT, NodesType, TreeType


def pick(op: Pick, tree: TreeType, at: NodesType | None) -> NodesType:
    """Nodes by place, index or score."""
    if at is not None:
        check_nodes(tree, at, op.at)
    if sum(given is not None for given in (op.nodes, op.best, op.worst)) > 1:
        raise RuleError("arity", "pick takes one of nodes=, best= and worst=")
    indices, width = _placed_at(op, tree, at)
    if op.nodes is not None:
        return _numbered(op.nodes, tree, indices, width)
    bound = op.best if op.best is not None else op.worst
    most = width if bound is None else min(bound, width)
    if op.count is not None or most < width or (bound is not None and indices is None):
        closed = op.of == "all" and op.best is not None and op.by == "path"
        return NodesType(most, None, tree.lineage, closed=closed, among=indices)
    holds_root = indices is not None and ROOT in indices
    last_of_chain = op.of == "newest" and tree.is_chain and tree.newest_count == 1
    seen = tree.nodes if op.of == "leaves" or last_of_chain else 0
    return NodesType(width, indices, tree.lineage, holds_root, seen=seen)


def _numbered(
    nodes: tuple[int, ...], tree: TreeType, indices: tuple[int, ...] | None, width: int
) -> NodesType:
    if any(index >= width for index in nodes) or len(set(nodes)) != len(nodes):
        raise RuleError("children", f"nodes={list(nodes)} of {width} nodes, each once")
    if indices is None:
        return NodesType(len(nodes), None, tree.lineage)
    chosen = tuple(indices[index] for index in nodes)
    return NodesType(len(nodes), chosen, tree.lineage, ROOT in chosen)


def _placed_at(
    op: Pick, tree: TreeType, at: NodesType | None
) -> tuple[tuple[int, ...] | None, int]:
    match op.of:
        case "newest":
            return tree.newest, tree.newest_count
        case "all":
            everything = tuple(range(tree.nodes)) or (ROOT,)
            return everything, len(everything)
        case "placed":
            return tree.placed, len(tree.placed)
        case "leaves":
            leaves = tree.leaves
            if leaves is None:
                return None, 1 if tree.is_chain else max(tree.nodes, 1)
            return (None if tree.ragged else leaves), len(leaves)
        case "from":
            if at is None:
                raise RuleError("type", "pick of=from needs at=")
            if tree.parents is None or at.indices is None:
                grown = at.seen and tree.is_chain  # below the tip of an earlier chain
                return None, 1 + tree.nodes - (at.seen if grown else 0)
            below = set(at.indices)
            for node, parent in enumerate(tree.parents):
                if parent in below:
                    below.add(node)
            return tuple(sorted(below)), len(below)
