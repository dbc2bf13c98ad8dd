"""`trim`: a tree without what lies deep in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import given_nodes
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import Value

if TYPE_CHECKING:
    from specplan.ir.meaning import Scope, World


@dataclass(frozen=True, kw_only=True)
class Trim(Op):
    """The same tree, whose nodes below `depth` are not there; the others keep their numbers.

    %s = trim %t depth=2
    %s = trim %pool depth=1
    """

    keyword = "trim"
    positional = ("tree",)
    tree: Value
    depth: int

    def infer(self, context: Context) -> tuple[TreeType]:
        """A tree of the same shape, some of whose nodes may be missing."""
        tree = context.expect(self.tree, TreeType, "trim")
        return (replace(tree, newest=None, newest_count=tree.nodes, ragged=True),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """What choosing among as many nodes takes."""
        return Work("prune", given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Nodes of a greater depth die."""
        tree = scope[self.tree]
        nodes = (
            replace(node, live=node.live and tree.depth(number) <= self.depth)
            for number, node in enumerate(tree.nodes)
        )
        return (replace(tree, nodes=tuple(nodes)),)


OP = Trim
