"""Static types of the ops that make, change and choose from trees."""

from __future__ import annotations

from dataclasses import replace

from specplan.ir.ops import Adopt, Graft, Grow, Lookup, Pick, Place, Prune, Relabel, Reroot
from specplan.ir.rule_error import RuleError
from specplan.ir.types import ROOT, NodesType, PathType, RowsType, TreeType


def grow(op: Grow, tree: TreeType, at: NodesType, rows: RowsType) -> TreeType:
    """Children below nodes; draws need their uniforms (checked by the caller)."""
    check_lineage(tree, at.lineage, f"nodes %{op.at}")
    check_lineage(tree, rows.lineage, f"rows %{op.rows}")
    _check_covered(op, tree, at, rows)
    counts = child_counts(op.children, at)
    grown = _attach(tree, at, counts, 1, op.keep)
    drew = op.how != "best"
    dropped = tree.dropped_draws or (drew and op.keep is not None and op.keep < sum(counts))
    laws = tree.laws | ({op.how} if sum(counts) else set())
    return replace(grown, laws=laws, dropped_draws=dropped)


def lookup(op: Lookup, tree: TreeType, at: NodesType) -> TreeType:
    """Chains found in a source; any of them may be missing."""
    check_lineage(tree, at.lineage, f"nodes %{op.at}")
    counts = child_counts(op.children, at)
    grown = _attach(tree, at, counts, op.length, op.nodes)
    return replace(grown, laws=tree.laws | {"given"}, ragged=True)


def place(op: Place, tree: TreeType, at: NodesType) -> TreeType:
    """Constant tokens below nodes, as a chain each; `upto` fills up to that depth."""
    check_lineage(tree, at.lineage, f"nodes %{op.at}")
    length = len(op.tokens)
    if op.upto is not None:
        if at.width != 1:
            raise RuleError("children", "place upto= works below one node")
        if tree.nodes == 0 and at.indices == (ROOT,):
            grown = _attach(tree, at, (1,), op.upto, None)
        else:
            size = max(op.upto, tree.nodes)
            grown = replace(
                tree, nodes=size, depth=max(op.upto, tree.depth), parents=None, newest=None,
                newest_count=op.upto, ragged=True,
            )  # fmt: skip
    else:
        grown = _attach(tree, at, (1,) * at.width, length, None)
    new = tuple(range(tree.nodes, grown.nodes))
    return replace(
        grown, probes=tree.probes or op.probe, placed=tree.placed + new, laws=tree.laws | {"given"}
    )


def relabel(op: Relabel, tree: TreeType, other: TreeType | None) -> TreeType:
    """The same shape with new tokens."""
    if op.map and len(op.map) != tree.nodes:
        raise RuleError("children", f"map has {len(op.map)} entries for {tree.nodes} nodes")
    if other is not None and any(not ROOT <= index < other.nodes for index in op.map):
        raise RuleError("children", f"map points outside the {other.nodes} nodes of %{op.other}")
    return replace(tree, laws=tree.laws | {"given"}, probes=False)


def graft(op: Graft, trees: tuple[TreeType, ...]) -> TreeType:
    """Trees joined at the root."""
    parents: list[int] | None = []
    lineage: frozenset[str] = frozenset()
    laws: frozenset[str] = frozenset()
    for tree in trees:
        if parents is not None and tree.parents is not None and op.same == "keep":
            offset = len(parents)
            parents += [ROOT if p == ROOT else p + offset for p in tree.parents]
        else:
            parents = None
        lineage, laws = lineage | tree.lineage, laws | tree.laws
    nodes = sum(tree.nodes for tree in trees)
    merged_draws = op.same == "merge" and any(_drew(tree.laws) for tree in trees)
    return TreeType(
        nodes=nodes,
        depth=max(tree.depth for tree in trees),
        parents=None if parents is None else tuple(parents),
        newest=None,
        newest_count=sum(tree.newest_count for tree in trees),
        ragged=any(tree.ragged for tree in trees),
        laws=laws,
        dropped_draws=merged_draws or any(tree.dropped_draws for tree in trees),
        probes=any(tree.probes for tree in trees),
        rows=trees[0].rows,
        lineage=lineage,
    )


def pick(op: Pick, tree: TreeType, at: NodesType | None) -> NodesType:
    """Nodes by place, index or score."""
    indices, width = _placed_at(op, tree, at)
    if op.nodes is not None:
        if indices is None:
            if any(not 0 <= index < width for index in op.nodes):
                raise RuleError("children", f"nodes={list(op.nodes)} of at most {width}")
            return NodesType(len(op.nodes), None, tree.lineage)
        if any(not 0 <= index < len(indices) for index in op.nodes):
            raise RuleError("children", f"nodes={list(op.nodes)} of {len(indices)} nodes")
        indices = tuple(indices[index] for index in op.nodes)
        width = len(indices)
    bound = op.best if op.best is not None else op.worst
    if bound is not None:
        closed = op.of == "all" and op.best is not None and op.by == "path"
        if width == 1 and indices is not None:
            return NodesType(1, indices, tree.lineage, ROOT in indices)
        return NodesType(min(bound, width), None, tree.lineage, closed=closed)
    if op.count is not None:
        return NodesType(width, None, tree.lineage)
    holds_root = indices is not None and ROOT in indices
    seen = tree.nodes if op.of == "leaves" else 0
    return NodesType(width, indices, tree.lineage, holds_root, seen=seen)


def prune(op: Prune, tree: TreeType, to: NodesType) -> TreeType:
    """Some nodes and their ancestors."""
    check_lineage(tree, to.lineage, f"nodes %{op.to}")
    dropped = tree.dropped_draws or _drew(tree.laws)
    if tree.parents is not None and to.indices is not None:
        kept = sorted(_closure(tree.parents, to.indices))
        place_of = {ROOT: ROOT, **{old: new for new, old in enumerate(kept)}}
        parents = tuple(place_of[tree.parents[old]] for old in kept)
        nodes = len(kept)
    else:
        parents = None
        nodes = min(tree.nodes, to.width if to.closed else to.width * max(tree.depth, 1))
    return replace(
        tree, nodes=nodes, depth=min(tree.depth, nodes), parents=parents, newest=None,
        newest_count=nodes, placed=(), dropped_draws=dropped,
    )  # fmt: skip


def reroot(op: Reroot, tree: TreeType) -> TreeType:
    """What survives below the emitted path."""
    nodes = op.nodes if op.nodes is not None else tree.nodes
    chain = tree.is_chain is True or nodes <= 1
    parents = tuple(range(-1, nodes - 1)) if chain else None
    depth = nodes if chain else min(tree.depth, nodes)
    return replace(
        tree, nodes=nodes, depth=depth, parents=parents, newest=None, newest_count=nodes,
        placed=(), ragged=True, probes=False,
    )  # fmt: skip


def adopt(op: Adopt, tree: TreeType, path: PathType, rows: RowsType) -> TreeType:
    """A judged path and its bonus as drafted nodes, in place of the nodes that were judged."""
    check_lineage(tree, rows.lineage, f"rows %{op.rows}")
    base = tree.nodes - path.nodes
    nodes = base + path.depth + 1
    depth = tree.depth - path.depth + path.depth + 1
    chain = tree.is_chain is True
    parents = tuple(range(-1, nodes - 1)) if chain else None
    newest = tuple(range(base, nodes)) if chain else None
    return TreeType(
        nodes=nodes, depth=min(depth, nodes), parents=parents, newest=newest,
        newest_count=path.depth + 1, ragged=True, laws=frozenset({"draw"}), rows=tree.rows,
        dropped_draws=tree.dropped_draws, lineage=tree.lineage,
    )  # fmt: skip


def child_counts(children: int | tuple[int, ...], at: NodesType) -> tuple[int, ...]:
    """Children per node of `at`.

    Raises:
        RuleError: `children`, when the list has another length or a negative count.
    """
    counts = (children,) * at.width if isinstance(children, int) else children
    if len(counts) != at.width:
        raise RuleError("children", f"{len(counts)} child counts for {at.width} nodes")
    if any(count < 0 for count in counts):
        raise RuleError("children", "a child count is negative")
    return counts


def check_lineage(tree: TreeType, lineage: frozenset[str], what: str) -> None:
    """Refuse nodes or rows of an unrelated tree."""
    if not tree.related(lineage):
        raise RuleError("lineage", f"{what} belong to another tree")


def _check_covered(op: Grow, tree: TreeType, at: NodesType, rows: RowsType) -> None:
    """Every node needs a row of its own or of an ancestor (heads look ahead from the root)."""
    if at.indices is None or rows.indices is None or tree.parents is None:
        return
    for node in at.indices:
        above = node
        while above not in rows.indices:
            if above == ROOT:
                raise RuleError("lineage", f"rows %{op.rows} have none for node {node} or above")
            above = tree.parents[above]


def _attach(
    tree: TreeType, at: NodesType, counts: tuple[int, ...], length: int, limit: int | None
) -> TreeType:
    """`counts[i]` chains of `length` nodes below node i of `at`."""
    total = sum(counts) * length
    if total == 0:
        return tree
    added = total if limit is None else min(total, limit)
    static = tree.parents is not None and at.indices is not None and added == total
    if not static or tree.parents is None or at.indices is None:
        return replace(
            tree, nodes=tree.nodes + added, depth=tree.depth + min(length, added), parents=None,
            newest=None, newest_count=added,
        )  # fmt: skip
    parents = list(tree.parents)
    for node, count in zip(at.indices, counts, strict=True):
        for _ in range(count):
            parent = node
            for _ in range(length):
                parents.append(parent)
                parent = len(parents) - 1
    grown = replace(tree, nodes=len(parents), parents=tuple(parents))
    return replace(
        grown, depth=max(grown.depths or (0,)), newest=tuple(range(tree.nodes, len(parents))),
        newest_count=added,
    )  # fmt: skip


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
                return None, 1 if tree.is_chain else tree.nodes
            return (None if tree.ragged else leaves), len(leaves)
        case "from":
            if at is None:
                raise RuleError("type", "pick of=from needs at=")
            if tree.parents is None or at.indices is None:
                return None, tree.nodes + 1
            below = set(at.indices)
            for node, parent in enumerate(tree.parents):
                if parent in below:
                    below.add(node)
            return tuple(sorted(below)), len(below)


def _closure(parents: tuple[int, ...], nodes: tuple[int, ...]) -> set[int]:
    kept: set[int] = set()
    for start in nodes:
        node = start
        while node != ROOT and node not in kept:
            kept.add(node)
            node = parents[node]
    return kept


def _drew(laws: frozenset[str]) -> bool:
    return bool(laws & {"draw", "draw_distinct", "shared"})
