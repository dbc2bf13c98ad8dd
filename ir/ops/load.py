"""`load`: read a value state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specplan.ir.meaning import Scope, Tree
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.state_types import loaded_type
from specplan.ir.types.tree_types import given_nodes
from specplan.ir.types.value_types import NumberType, TreeType
from specplan.ir.values import State
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Load(Op):
    """Read a value state.

    %w = load @window
    %b = load @bar
    """

    keyword = "load"
    renumbers = True
    owns_probs = True
    positional = ("state",)
    touches = (("state", ("value",)),)
    state: State

    def infer(self, context: Context) -> tuple[TreeType | NumberType]:
        """What the state is declared to hold."""
        return (loaded_type(context.plan.state(self.state), self.state),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """All nodes of the tree that it gives."""
        return Work(self.keyword, given_nodes(step))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The value; a tree hangs below the end of the text."""
        value = world.values[self.state]
        return (Tree(world.begin).grown(value) if isinstance(value, tuple) else value,)


OP = Load
