"""`reroot`: keep the part of a tree below the emitted path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.meaning import Node, Scope, Tree
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import given_nodes
from specplan.ir.types.value_types import ROOT, PathType, TreeType
from specplan.ir.values import Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Reroot(Op):
    """Keep the part of a tree below the emitted path, as a tree below the new root.

    %r = reroot %g %e
    %s = reroot %c %e nodes=3
    """

    keyword = "reroot"
    renumbers = True
    owns_probs = True
    positional = ("tree", "path")
    gone = (("take", "what survives lies below the emitted path; forward levels= looks ahead"),)
    tree: Value
    path: Value
    nodes: int | None = None

    def infer(self, context: Context) -> tuple[TreeType]:
        """A new tree of at most as many nodes; fewer for some requests."""
        tree = context.expect(self.tree, TreeType, "reroot")
        context.expect(self.path, PathType, "reroot")
        nodes = tree.nodes if self.nodes is None else min(self.nodes, tree.nodes)
        chain = nodes <= 1 or tree.is_chain
        left = replace(
            tree, nodes=nodes, depth=nodes if chain else min(tree.depth, nodes),
            parents=tuple(range(-1, nodes - 1)) if chain else None, newest=None, newest_count=nodes,
            tips=False, ragged=True, chain=chain, lineage=None, root_logits=False,
        )  # fmt: skip
        return (left,)

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The nodes below the one at which the text now ends."""
        tree, place, nodes = scope[self.tree], dict[int, int](), list[Node]()
        for number in [ROOT, *tree.live_nodes]:
            if tree.path(number) == world.text:
                place[number] = ROOT
            elif number == ROOT or (self.nodes is not None and len(nodes) >= self.nodes):
                continue
            elif tree.nodes[number].parent in place:
                place[number] = len(nodes)
                nodes.append(replace(tree.nodes[number], parent=place[tree.nodes[number].parent]))
        return (Tree(world.text, tuple(nodes), tuple(range(len(nodes))) or (ROOT,)),)


OP = Reroot
