"""`prune`: keep some nodes of a tree and their ancestors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.meaning import Scope, numbered
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import check_nodes, given_nodes
from specplan.ir.types.value_types import ROOT, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Prune(Op):
    """Keep the nodes `to` and their ancestors, renumbered parents first.

    %b = pick %t of=all best=16
    %s = prune %t to=%b
    """

    keyword = "prune"
    renumbers = True
    positional = ("tree",)
    tree: Value
    to: Value

    def infer(self, context: Context) -> tuple[TreeType]:
        """A new tree, whose shape is static where the tree's and the nodes are."""
        tree = context.expect(self.tree, TreeType, "prune")
        to = context.nodes(self.to, "to")
        check_nodes(tree, to, self.to)
        if tree.parents is not None and to.indices is not None:
            stay = sorted(_closure(tree.parents, to.indices))
            place_of = {ROOT: ROOT, **{old: new for new, old in enumerate(stay)}}
            parents = tuple(place_of[tree.parents[old]] for old in stay)
            nodes = len(stay)
        else:
            parents = None
            nodes = min(tree.nodes, to.width if to.closed else to.width * max(tree.depth, 1))
        left = replace(
            tree, nodes=nodes, depth=min(tree.depth, nodes), parents=parents, newest=None,
            newest_count=nodes, tips=False, chain=tree.is_chain or to.width == 1, lineage=None,
            dropped_draws=tree.dropped_draws or tree.drawn,
        )  # fmt: skip
        return (left,)

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """These nodes and their ancestors."""
        tree = scope[self.tree]
        return (tree.only(i for i in numbered(scope[self.to]).numbers if i != ROOT),)


def _closure(parents: tuple[int, ...], nodes: tuple[int, ...]) -> set[int]:
    """Nodes and all their ancestors but the root."""
    stay: set[int] = set()
    for start in nodes:
        node = start
        while node != ROOT and node not in stay:
            stay.add(node)
            node = parents[node]
    return stay


OP = Prune
