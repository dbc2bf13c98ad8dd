"""Static types of the ops that make, change and choose from trees."""

from __future__ import annotations

from dataclasses import replace

from specplan.ir.bounds import check_tree_size
from specplan.ir.ops import Adopt, Graft, Grow, Lookup, Place, Prune, Relabel, Reroot
from specplan.ir.rule_error import RuleError
from specplan.ir.types import ROOT, NodesType, PathType, RowsType, TreeType
from specplan.ir.values import Value


def grow(op: Grow, tree: TreeType, at: NodesType, rows: RowsType) -> TreeType:
    """Children below nodes."""
    check_nodes(tree, at, op.at)
    check_rows(tree, rows, op.rows)
    _check_covered(op, tree, at, rows)
    counts = child_counts(op.children, at)
    grown = _attach(tree, at, counts, 1, op.keep)
    drew = op.how != "best"
    dropped = tree.dropped_draws or (drew and op.keep is not None and op.keep < sum(counts))
    laws = tree.laws | ({op.how} if sum(counts) else set())
    return replace(grown, laws=laws, dropped_draws=dropped)


def lookup(op: Lookup, tree: TreeType, at: NodesType) -> TreeType:
    """Chains found in a source; any of them may be missing."""
    check_nodes(tree, at, op.at)
    if op.match and (len(op.match) != 2 or op.match[0] > op.match[1]):
        raise RuleError("size", "match is [shortest, longest]")
    counts = child_counts(op.children, at)
    grown = _attach(tree, at, counts, op.length, op.nodes)
    return replace(grown, laws=tree.laws | {"given"}, ragged=True)


def place(op: Place, tree: TreeType, at: NodesType) -> TreeType:
    """Constant tokens below nodes, as a chain each; `upto` fills up to that depth."""
    check_nodes(tree, at, op.at)
    if op.upto is None:
        grown = _attach(tree, at, (1,) * at.width, len(op.tokens), None)
    elif at.width != 1:
        raise RuleError("children", "place upto= works below one node")
    elif tree.nodes == 0 and at.indices == (ROOT,):
        grown = _attach(tree, at, (1,), op.upto, None)
    else:
        size, chain = max(op.upto, tree.nodes), tree.is_chain and _is_tip(tree, at)
        check_tree_size(size)
        grown = replace(
            tree, nodes=size, depth=max(op.upto, tree.depth), newest=None, newest_count=op.upto,
            parents=tuple(range(-1, size - 1)) if chain else None, ragged=True, chain=chain,
            lineage=None, dropped_draws=tree.dropped_draws or tree.drawn,
        )  # fmt: skip
    new = tuple(range(tree.nodes, grown.nodes))
    return replace(
        grown, probes=tree.probes or op.probe, placed=tree.placed + new, laws=tree.laws | {"given"}
    )


def relabel(
    op: Relabel, tree: TreeType, rows: RowsType | None, at: NodesType | None, other: TreeType | None
) -> TreeType:
    """The same shape with new tokens; rows of the old ones say nothing about them."""
    if sum(given is not None for given in (op.rows, op.other, op.token)) != 1:
        raise RuleError("arity", "relabel takes one of rows=, other= and token=")
    if rows is not None:
        check_rows(tree, rows, op.rows)
    if at is not None:
        check_nodes(tree, at, op.at)
    if op.map and len(op.map) != tree.nodes:
        raise RuleError("children", f"map has {len(op.map)} entries for {tree.nodes} nodes")
    if other is not None:
        if any(index >= other.nodes for index in op.map):
            raise RuleError(
                "children", f"map points outside the {other.nodes} nodes of %{op.other}"
            )
        if not op.map and other.nodes != tree.nodes:
            raise RuleError("children", f"%{op.other} has {other.nodes} nodes, not {tree.nodes}")
    covered = at is None or (at.indices is not None and set(tree.placed) <= set(at.indices))
    return replace(
        tree, laws=tree.laws | {"given"}, probes=tree.probes and not covered, lineage=None,
        dropped_draws=tree.dropped_draws or (tree.drawn and at is not None)
        or (other is not None and other.drawn),
    )  # fmt: skip


def graft(op: Graft, trees: tuple[TreeType, ...]) -> TreeType:
    """Trees joined at the root; the nodes of the first keep their numbers.

    Siblings that were drawn from several laws are laws of their own kind, `joined`: a rule that
    takes children of one law does not judge them. To merge drops no draw, but shared ones, which
    rules tell apart by their depth alone.
    """
    if len({tree.rows for tree in trees}) > 1:
        raise RuleError("lineage", "trees of different row groups have different roots")
    nodes = sum(tree.nodes for tree in trees)
    check_tree_size(nodes)
    parents: list[int] | None = []
    for tree in trees:
        if parents is not None and tree.parents is not None and op.same == "keep":
            offset = len(parents)
            parents += [ROOT if p == ROOT else p + offset for p in tree.parents]
        else:
            parents = None
    races = sum("shared" in tree.laws for tree in trees)
    merged_draws = races > 1 or (op.same == "merge" and races > 0)
    laws = frozenset[str]().union(*(tree.laws for tree in trees))
    if sum(tree.drawn for tree in trees) > 1:
        laws |= {"joined"}
    return TreeType(
        nodes=nodes,
        depth=max(tree.depth for tree in trees),
        parents=None if parents is None else tuple(parents),
        newest=None,
        newest_count=sum(tree.newest_count for tree in trees),
        ragged=any(tree.ragged for tree in trees),
        chain=sum(tree.nodes > 0 for tree in trees) <= 1 and all(t.is_chain for t in trees),
        laws=laws,
        dropped_draws=merged_draws or any(tree.dropped_draws for tree in trees),
        probes=any(tree.probes for tree in trees),
        rows=trees[0].rows,
        lineage=trees[0].lineage,
    )


def prune(op: Prune, tree: TreeType, to: NodesType) -> TreeType:
    """Some nodes and their ancestors."""
    check_nodes(tree, to, op.to)
    probes = tree.probes
    if tree.parents is not None and to.indices is not None:
        kept = sorted(_closure(tree.parents, to.indices))
        place_of = {ROOT: ROOT, **{old: new for new, old in enumerate(kept)}}
        parents = tuple(place_of[tree.parents[old]] for old in kept)
        nodes = len(kept)
        probes = probes and not set(tree.placed).isdisjoint(kept)
    else:
        parents = None
        nodes = min(tree.nodes, to.width if to.closed else to.width * max(tree.depth, 1))
    return replace(
        tree, nodes=nodes, depth=min(tree.depth, nodes), parents=parents, newest=None,
        newest_count=nodes, placed=(), chain=tree.is_chain, probes=probes, lineage=None,
        dropped_draws=tree.dropped_draws or tree.drawn,
    )  # fmt: skip


def reroot(op: Reroot, tree: TreeType) -> TreeType:
    """What survives below the emitted path."""
    nodes = tree.nodes if op.nodes is None else min(op.nodes, tree.nodes)
    chain = nodes <= 1 or (_placed_chains(tree) if op.take == "placed" else tree.is_chain)
    return replace(
        tree, nodes=nodes, depth=nodes if chain else min(tree.depth, nodes),
        parents=tuple(range(-1, nodes - 1)) if chain else None, newest=None, newest_count=nodes,
        placed=(), ragged=True, chain=chain, probes=False, lineage=None,
    )  # fmt: skip


def adopt(op: Adopt, tree: TreeType, path: PathType, rows: RowsType) -> TreeType:
    """A judged path and its bonus as drafted nodes, in place of the nodes that were judged."""
    check_rows(tree, rows, op.rows)
    if tree.lineage is None or not tree.lineage.related(path.lineage):
        raise RuleError("lineage", f"the path %{op.path} was judged in another tree")
    base = max(tree.nodes - path.nodes, 0)
    nodes = base + path.depth + 1
    check_tree_size(nodes)
    chain = tree.is_chain
    return TreeType(
        nodes=nodes, depth=min(tree.depth + 1, nodes), newest_count=path.depth + 1,
        parents=tuple(range(-1, nodes - 1)) if chain else None, chain=chain,
        newest=tuple(range(base, nodes)) if chain else None, ragged=True, probes=tree.probes,
        laws=tree.laws | {"draw"}, rows=tree.rows, dropped_draws=tree.dropped_draws,
    )  # fmt: skip


def child_counts(children: int | tuple[int, ...], at: NodesType) -> tuple[int, ...]:
    """Children per node of `at`.

    Raises:
        RuleError: `children`, when the list has another length.
    """
    counts = (children,) * at.width if isinstance(children, int) else children
    if len(counts) != at.width:
        raise RuleError("children", f"{len(counts)} child counts for {at.width} nodes")
    return counts


def check_rows(tree: TreeType, rows: RowsType, name: Value | None) -> None:
    """Refuse rows of an unrelated tree; those of an extended one are rows of this one too.

    Raises:
        RuleError: `lineage`.
    """
    if tree.lineage is None or not tree.lineage.related(rows.lineage):
        raise RuleError("lineage", f"rows %{name} belong to another tree")


def check_nodes(tree: TreeType, nodes: NodesType, name: Value | None) -> None:
    """Refuse nodes that were not picked from the tree or from one it extends.

    Raises:
        RuleError: `lineage`.
    """
    if tree.lineage is None or nodes.lineage is None or not tree.lineage.extends(nodes.lineage):
        raise RuleError("lineage", f"nodes %{name} belong to another tree")


def _check_covered(op: Grow, tree: TreeType, at: NodesType, rows: RowsType) -> None:
    """Every node needs a row of its own or of an ancestor (heads look ahead from the root)."""
    if at.indices is None or rows.indices is None or tree.parents is None:
        return
    covered = set(rows.indices)
    for node in at.indices:
        above = node
        while above not in covered:
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
    check_tree_size(tree.nodes + added)
    static = tree.parents is not None and at.indices is not None and added == total
    if not static or tree.parents is None or at.indices is None:
        chain = tree.is_chain and counts == (1,) and _is_tip(tree, at)
        return replace(
            tree, nodes=tree.nodes + added, depth=tree.depth + min(length, added), parents=None,
            newest=tuple(range(tree.nodes, tree.nodes + added)) if added == total else None,
            newest_count=added, chain=chain,
        )  # fmt: skip
    parents, depths = list(tree.parents), [*(tree.depths or ()), 0]
    deepest = tree.depth
    for node, count in zip(at.indices, counts, strict=True):
        for _ in range(count):
            parents += [node, *range(len(parents), len(parents) + length - 1)]
        deepest = max(deepest, depths[node] + length if count else 0)
    return replace(
        tree, nodes=len(parents), parents=tuple(parents), depth=deepest,
        newest=tuple(range(tree.nodes, len(parents))), newest_count=added,
    )  # fmt: skip


def _is_tip(tree: TreeType, at: NodesType) -> bool:
    """True when `at` is the one node of a chain that has no child."""
    if at.indices is not None and tree.parents is not None:
        return at.indices == tree.leaves
    return at.width == 1 and at.seen == tree.nodes


def _placed_chains(tree: TreeType) -> bool:
    """True when the placed nodes form at most one chain below each other node."""
    if tree.parents is None:
        return False
    above = [tree.parents[node] for node in tree.placed]
    return len(set(above)) == len(above)


def _closure(parents: tuple[int, ...], nodes: tuple[int, ...]) -> set[int]:
    kept: set[int] = set()
    for start in nodes:
        node = start
        while node != ROOT and node not in kept:
            kept.add(node)
            node = parents[node]
    return kept
