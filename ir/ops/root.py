"""`root`: the tree without drafted nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specplan.ir.meaning import Scope, Tree
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.tree_types import given_nodes
from specplan.ir.types.value_types import TreeType
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Root(Op):
    """The tree without drafted nodes.

    %t0 = root
    %t = root
    """

    keyword = "root"
    gone = (("rows", "forward most= bounds the tokens of all requests together"),)

    def infer(self, context: Context) -> tuple[TreeType]:
        """A tree of no nodes."""
        return (TreeType(),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The text's end, with nothing drafted."""
        return (Tree(world.text),)


OP = Root
