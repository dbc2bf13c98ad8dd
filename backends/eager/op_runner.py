"""What every runner of ops shares: the interpreter, rounds that are traced, ops of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from torch import Tensor

from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.ops import lowerings, measure
from specplan.backends.ops.accept import Form, fastest
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.lookup import lookup as with_continuations
from specplan.backends.ops.tensors.values import Nodes, Tree
from specplan.backends.ops.when import Value as Operand
from specplan.backends.ops.when import when as either
from specplan.ir import ops as ir
from specplan.ir.types.value_types import TreeType, Type
from specplan.ir.values import State, Value
from specplan.runtime.sampling import SamplingSettings

Scope: TypeAlias = dict[Value, Operand]
T = TypeVar("T")


def typed(operand: object, kind: type[T]) -> T:
    """An operand, which the verifier knows to be of this kind."""
    assert isinstance(operand, kind), f"a {type(operand).__name__} is no {kind.__name__}"
    return operand


def nodes_as(operand: Operand) -> Nodes:
    """Nodes, or a tree taken as the root and all its nodes."""
    return operand.everything if isinstance(operand, Tree) else typed(operand, Nodes)


class Stops(Protocol):
    """The requests of a batch in a loop that may end early."""

    @property
    def running(self) -> Tensor:
        """Requests for which the next trip counts, bool `[B]`."""

    def any_stopped(self) -> bool:
        """Whether some request takes no further trip."""

    def over(self) -> bool:
        """Whether none does; False where that is not known."""

    def passed(self, flag: Tensor) -> None:
        """Note a trip; requests whose flag holds, bool `[B]`, take no further one."""

    def end(self) -> None:
        """Leave the loop."""


class OpRunner:
    """Runs ops, and answers what their lowerings ask (`specplan.backends.ops.Runner`).

    Attributes:
        stateful: ops that touch more than their operands: texts, caches, sources, states, other
            ops. They are called with the runner, the op and the values so far, to which they add
            results; every other op is its lowering.
        analysis: what is known of the plan before it runs.
        trip: of all loops around the op that runs, counted together.
    """

    stateful: ClassVar[Mapping[type[ir.Op], Callable[[Any, Any, Scope], None]]] = {}
    analysis: PlanAnalysis
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
        return self.analysis.steps[id(op), self.trip].gives[0]

    def reads(self, op: ir.Op) -> Mapping[Value, Type]:
        """The types of its operands."""
        return self.analysis.steps[id(op), self.trip].reads

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
        return op.state in self.analysis.drawn

    def remembers(self, op: ir.Op) -> bool:
        """Whether logits that trees are grown from are asked for again."""
        return self.analysis.mixes

    def most(self, op: ir.Op) -> int | None:
        """Nodes that the round judges at most; None: as many as there are."""
        return self.analysis.judged.get(id(op))

    def form(self, op: ir.Op) -> Form:
        """Which form of an acceptance rule runs."""
        return fastest

    def run(self, ops: tuple[ir.Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""
        raise NotImplementedError

    def continuations(self, op: ir.Lookup, at: Nodes) -> Continuations:
        """What the source of a lookup has below some nodes."""
        raise NotImplementedError

    def lag(self, state: State, layers: Any) -> Tensor:
        """Text tokens that some of a cache's layers lack, float64 `[B]`."""
        raise NotImplementedError

    def counting(self) -> Tensor:
        """Requests that are not done and take part in the region that runs, bool `[B]`."""
        raise NotImplementedError

    def emitted_keys(self) -> tuple[Tensor, Tensor]:
        """Keys of the tokens that this round emitted, int64 `[B, E]`, and which there are."""
        raise NotImplementedError

    def number(self, numbers: Tensor) -> Tensor:
        """Numbers of requests, `[B]`, where formulas read them."""
        return numbers

    def stops(self, only: Tensor | None) -> Stops:
        """Begin a loop that may end early, for the requests whose flag holds; None for all."""
        raise NotImplementedError

    def lookup(self, op: ir.Lookup, scope: Scope) -> None:
        """Look continuations up, and graft them."""
        self.graft(op, scope, self.continuations(op, nodes_as(scope[op.at])))

    def graft(self, op: ir.Lookup, scope: Scope, continuations: Continuations) -> None:
        """Graft continuations."""
        tree, at, kind = typed(scope[op.tree], Tree), nodes_as(scope[op.at]), self.kind(op)
        scope[op.results[0]] = with_continuations(
            op, tree, at, continuations=continuations, kind=typed(kind, TreeType)
        )

    def measure(self, op: ir.Measure, scope: Scope) -> None:
        """One number per request."""
        if isinstance(op.operand, State):
            scope[op.results[0]] = self.lag(op.operand, op.kind.get("layers"))
            return
        operand: Any = scope[op.operand]
        if op.kind.name.startswith("batch_"):
            numbers = measure.over_batch(operand, self.counting(), op.kind.name)
        elif op.kind.name == "said":
            numbers = measure.continued_nodes(operand, *self.emitted_keys())
        else:
            numbers = measure.measure(operand, op.kind)
        scope[op.results[0]] = self.number(numbers)

    def repeat(self, op: ir.Repeat, scope: Scope) -> None:
        """A number of trips; fewer where every request has asked for no more of them.

        What a request carried when it stopped stays as it was, whoever goes on.
        """
        carried: list[Operand] = [scope[initial] for _, initial in op.carried]
        outer, until, stops = self.trip, op.body.until, None
        if until is not None:
            stops = self.stops(None if op.only is None else typed(scope[op.only], Tensor))
        for index in range(op.count):
            if stops is not None and stops.over():
                break
            self.trip = outer * op.count + index
            inner = dict(scope)
            inner.update({p: value for (p, _), value in zip(op.carried, carried, strict=True)})
            self.run(op.body.ops, inner)
            following = [inner[name] for name in op.body.yields]
            if stops is not None and until is not None:
                if stops.any_stopped():
                    pairs = zip(following, carried, strict=True)
                    following = [either(stops.running, new, old) for new, old in pairs]
                stops.passed(typed(inner[until], Tensor))
            carried = following
        if stops is not None:
            stops.end()
        self.trip = outer
        scope.update(zip(op.results, carried, strict=True))

    def region(self, op: ir.Segment, inner: Scope) -> Scope:
        """Run a region in a scope of its own; what it yields, by the names of the results."""
        self.run(op.body.ops, inner)
        return dict(zip(op.results, (inner[name] for name in op.body.yields), strict=True))
