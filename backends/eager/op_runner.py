"""What every runner of ops shares: the interpreter, rounds that are traced, ops of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import Tensor

from specplan.backends.eager.prepared import Prepared
from specplan.backends.eager.values import Scope
from specplan.backends.ops import lowerings
from specplan.backends.ops.accept import Form, fastest
from specplan.backends.ops.tensors.values import Tree
from specplan.ir import ops as ir
from specplan.ir.types.value_types import Type
from specplan.ir.values import Value
from specplan.runtime.sampling import SamplingSettings


class OpRunner:
    """Runs ops, and answers what their lowerings ask (`specplan.backends.ops.Runner`).

    Attributes:
        stateful: ops that touch more than their operands: texts, caches, sources, states, other
            ops. They are called with the runner, the op and the values so far, to which they add
            results; every other op is its lowering.
        prepared: what is known of the plan before it runs.
        trip: of all loops around the op that runs, counted together.
    """

    stateful: ClassVar[Mapping[type[ir.Op], Callable[[Any, Any, Scope], None]]] = {}
    prepared: Prepared
    trip: int

    def run_op(self, op: ir.Op, scope: Scope) -> None:
        """Run one op; `scope` gains its results."""
        stateful = self.stateful.get(type(op))
        if stateful is not None:
            stateful(self, op, scope)
        else:
            scope[op.results[0]] = lowerings()[op.keyword](op, scope, self)

    def kind(self, op: ir.Op) -> Type:
        """The type of the op's result."""
        return self.prepared.steps[id(op), self.trip].gives[0]

    def reads(self, op: ir.Op) -> Mapping[Value, Type]:
        """The types of its operands."""
        return self.prepared.steps[id(op), self.trip].reads

    def root(self, op: ir.Op) -> Tree:
        """The tree without drafted nodes, of the texts as they are now."""
        raise NotImplementedError

    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """What the value state of `load` or `store` holds."""
        raise NotImplementedError

    def settings(self, op: ir.Op) -> SamplingSettings:
        """How requests sample."""
        raise NotImplementedError

    def keeps_probs(self, op: ir.Store) -> bool:
        """Whether that state keeps the probabilities that nodes were drawn from."""
        return op.state in self.prepared.drawn

    def remembers(self, op: ir.Op) -> bool:
        """Whether logits that trees are grown from are asked for again."""
        return self.prepared.mixes

    def most(self, op: ir.Op) -> int | None:
        """Nodes that the round judges at most; None: as many as there are."""
        return self.prepared.judged.get(id(op))

    def form(self, op: ir.Op) -> Form:
        """Which form of an acceptance rule runs."""
        return fastest
