"""Static types of trees: what the ops that make, change and choose from them share."""

from __future__ import annotations

from dataclasses import replace

from specplan.ir.errors import RuleError
from specplan.ir.op import Step
from specplan.ir.types.bounds import check_tree_size
from specplan.ir.types.value_types import Lineage, LogitsType, NodesType, TreeType, Type
from specplan.ir.values import Value


def child_counts(children: int | tuple[int, ...], at: NodesType) -> tuple[int, ...]:
    """Children per node of `at`.

    Raises:
        RuleError: `children`, when the list has another length.
    """
    counts = (children,) * at.width if isinstance(children, int) else children
    if len(counts) != at.width:
        raise RuleError("children", f"children= has {len(counts)} counts for {at.width} nodes")
    return counts


def check_logits(tree: TreeType, logits: LogitsType, name: Value | None) -> None:
    """Refuse logits of an unrelated tree; those of an extended tree belong to this one, too.

    Raises:
        RuleError: `lineage`.
    """
    if tree.lineage is None or not tree.lineage.related(logits.lineage):
        raise RuleError(
            "lineage", f"logits %{name} belong to another tree; run a forward on this one"
        )


def check_nodes(tree: TreeType, nodes: NodesType, name: Value | None) -> None:
    """Refuse nodes that were not picked from the tree or from one it extends.

    Raises:
        RuleError: `lineage`.
    """
    if tree.lineage is None or nodes.lineage is None or not tree.lineage.extends(nodes.lineage):
        raise RuleError("lineage", f"nodes %{name} belong to another tree; pick from this one")


def attach(
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
        chain = tree.is_chain and counts == (1,) and is_tip(tree, at)
        return replace(
            tree, nodes=tree.nodes + added, depth=tree.depth + min(length, added), parents=None,
            newest=tuple(range(tree.nodes, tree.nodes + added)) if added == total else None,
            newest_count=added, tips=length == 1, chain=chain,
        )  # fmt: skip
    parents, depths = list(tree.parents), [*(tree.depths or ()), 0]
    deepest = tree.depth
    for node, count in zip(at.indices, counts, strict=True):
        for _ in range(count):
            parents += [node, *range(len(parents), len(parents) + length - 1)]
        deepest = max(deepest, depths[node] + length if count else 0)
    return replace(
        tree, nodes=len(parents), parents=tuple(parents), depth=deepest,
        newest=tuple(range(tree.nodes, len(parents))), newest_count=added, tips=length == 1,
    )  # fmt: skip


def given_nodes(step: Step) -> int:
    """Nodes of the tree that an op gives, one at least; 1 where it gives something else."""
    given = next(iter(step.gives), None)
    return max(1, given.nodes) if isinstance(given, TreeType) else 1


def nodes_before(step: Step, name: Value) -> int:
    """Nodes of a tree that an op reads."""
    tree = step.reads[name]
    assert isinstance(tree, TreeType)
    return tree.nodes


def is_tip(tree: TreeType, at: NodesType) -> bool:
    """True when `at` is the one node of a chain that has no child."""
    if at.indices is not None and tree.parents is not None:
        return at.indices == tree.leaves
    return at.width == 1 and at.seen == tree.nodes


def identified(item: Type) -> Type:
    """A tree with an identity of its own, which extends the one it had."""
    if not isinstance(item, TreeType):
        return item
    return replace(item, lineage=Lineage(item.lineage, item.nodes, item.parents, item.drawn))
