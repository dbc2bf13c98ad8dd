"""`store`: write a value state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Node, Scope, Tree
from specplan.ir.needs import Work
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import Plan, ValueState
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.context import Context
from specplan.ir.types.state_types import loaded_type
from specplan.ir.types.value_types import NumberType, TreeType
from specplan.ir.values import State, Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Store(Op):
    """Write a value state.

    store @window %s
    store @bar %b2
    """

    keyword = "store"
    positional = ("state", "value")
    touches = (("state", ("value",)),)
    writes = ("state",)
    state: State
    value: Value

    def infer(self, context: Context) -> tuple[()]:
        """No result; the value must be of the state's kind."""
        room = loaded_type(context.plan.state(self.state), self.state)
        if isinstance(room, NumberType) and room.calibrated:
            raise RuleError(
                "state", f"@{self.state} is calibrated before the plan runs; rounds cannot store it"
            )
        context.expect(self.value, type(room), "store")
        return ()

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """A stored tree fits the state."""
        tree, room = step.reads[self.value], loaded_type(plan.state(self.state), self.state)
        if not isinstance(tree, TreeType) or not isinstance(room, TreeType):
            return
        if tree.nodes > room.nodes or tree.depth > room.depth:
            yield (
                "capacity",
                f"%{self.value} may have {tree.nodes} nodes in {tree.depth} levels; "
                f"@{self.state} holds {room.nodes} in {room.depth}",
            )
        elif room.is_chain and not tree.is_chain:
            yield "capacity", f"@{self.state} is declared for chains, and %{self.value} may branch"
        elif room.parents and not room.is_chain and tree.parents != room.parents:
            other = f"%{self.value} has another shape than parents= of @{self.state}"
            yield "capacity", other
        elif room.drawn and not tree.origins <= room.origins:
            drawn = f"@{self.state} takes nodes of how=draw only, and %{self.value} has others"
            yield "capacity", drawn

    def demand(self, step: Step, plan: Plan) -> Work:
        """One value."""
        return Work(self.keyword)

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """The value; without `how=draw` in the state its nodes count as given from now on."""
        value, state = scope[self.value], world.plan.state(self.state)
        if isinstance(value, Tree):
            nodes = value.nodes
            if not (isinstance(state, ValueState) and state.keeps_probs):
                nodes = tuple(Node(n.token, n.parent, n.live) for n in nodes)
            value = nodes
        world.values[self.state] = value
        return ()


OP = Store
