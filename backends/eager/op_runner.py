"""What the interpreter and traced rounds share: how ops run, and what lowerings ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.texts import Texts
from specplan.backends.ops import lowerings, measure
from specplan.backends.ops.accept import Form, fastest
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.lookup import lookup as with_continuations
from specplan.backends.ops.tensors.values import Logits, Nodes, Tree
from specplan.backends.ops.when import Value as Operand
from specplan.backends.ops.when import when as either
from specplan.ir import ops as ir
from specplan.ir.types.value_types import TreeType, Type
from specplan.ir.values import State, Value
from specplan.runtime.models.modules import Module
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


class OpRunner(ABC):
    """Runs ops, and answers what their lowerings ask, by the names of their parameters.

    An op that touches more than its operands (texts, caches, sources, states, other ops) is a
    method `run_<keyword>`, which adds its results to the values so far; any other is its lowering.

    Attributes:
        analysis: what is known of the plan before it runs.
        batch: the texts.
        models: by their roles.
        scores: of which type scores of nodes are; None where none are asked for.
        trip: of all loops around the op that runs, counted together.
        running: requests for which the trip of a loop that runs now counts, bool `[B]`.
        trips: of each loop that ended, trips that each request took, int64 `[B]`.
        constants: tensors of placements and widths that were made already.
    """

    analysis: PlanAnalysis
    batch: Texts
    models: Mapping[str, Module]
    scores: torch.dtype | None
    running: Tensor

    def __init__(self) -> None:
        self.trip = 0
        self.trips: list[Tensor] = []
        self.constants: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}

    def run_op(self, op: ir.Op, scope: Scope) -> None:
        """Run one op; `scope` gains its results."""
        own = getattr(self, f"run_{op.keyword}", None)
        if own is not None:
            own(op, scope)
        else:
            scope[op.results[0]] = lowerings()[op.keyword](op, scope, self)

    @abstractmethod
    def run(self, ops: tuple[ir.Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""

    @abstractmethod
    def taking_part(self) -> Tensor | None:
        """Which requests take part in the region that runs, bool `[B]`; None for all."""

    @abstractmethod
    def counting(self) -> Tensor:
        """Requests that are not done and take part in the region that runs, bool `[B]`."""

    @abstractmethod
    def continuations(self, op: ir.Lookup, at: Nodes) -> Continuations:
        """What the source of a lookup has below some nodes."""

    @abstractmethod
    def lag(self, state: State, layers: Any) -> Tensor:
        """Text tokens that some of a cache's layers lack, float64 `[B]`."""

    @abstractmethod
    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """What the value state of `load` or `store` holds."""

    def number(self, numbers: Tensor) -> Tensor:
        """Numbers or flags of requests, `[B]`, where formulas and loops read them."""
        return numbers

    def is_sure(self, flag: Tensor) -> bool:
        """Whether a flag is known to hold; a trace knows of none."""
        return False

    def kind(self, op: ir.Op) -> Type:
        """The type of the op's result."""
        return self.analysis.steps[id(op), self.trip].gives[0]

    def reads(self, op: ir.Op) -> Mapping[Value, Type]:
        """The types of its operands."""
        return self.analysis.steps[id(op), self.trip].reads

    def root(self, op: ir.Op) -> Tree:
        """The tree without drafted nodes, of the texts as they are now."""
        return self.batch.root(self.scores)

    def settings(self, op: ir.Op) -> SamplingSettings:
        """How requests sample."""
        return self.batch.settings

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

    def run_lookup(self, op: ir.Lookup, scope: Scope) -> None:
        """Look continuations up, and graft them."""
        self.graft(op, scope, self.continuations(op, nodes_as(scope[op.at])))

    def graft(self, op: ir.Lookup, scope: Scope, continuations: Continuations) -> None:
        """Graft continuations."""
        tree, at, kind = typed(scope[op.tree], Tree), nodes_as(scope[op.at]), self.kind(op)
        scope[op.results[0]] = with_continuations(
            op, tree, at, continuations=continuations, kind=typed(kind, TreeType)
        )

    def run_measure(self, op: ir.Measure, scope: Scope) -> None:
        """One number per request."""
        if isinstance(op.operand, State):
            scope[op.results[0]] = self.lag(op.operand, op.kind.get("layers"))
            return
        operand: Any = scope[op.operand]
        if op.kind.name.startswith("batch_"):
            numbers = measure.over_batch(operand, self.counting(), op.kind.name)
        elif op.kind.name == "said":
            numbers = measure.continued_nodes(operand, *self.batch.written[1:])
        else:
            beside = None if op.beside is None else typed(scope[op.beside], Logits)
            numbers = measure.measure(operand, op.kind, beside)
        scope[op.results[0]] = self.number(numbers)

    def run_repeat(self, op: ir.Repeat, scope: Scope) -> None:
        """A number of trips; fewer where every request has asked for no more of them.

        What a request carried when it stopped stays as it was, whoever goes on.
        """
        carried: list[Operand] = [scope[initial] for _, initial in op.carried]
        outer, before, until = self.trip, self.running, op.body.until
        if until is not None:
            self.running = self.running & self.counting()
            if op.only is not None:
                self.running = self.running & self.number(typed(scope[op.only], Tensor))
        trips = torch.zeros_like(self.running, dtype=torch.int64)
        for index in range(op.count):
            if until is not None and self.is_sure(~self.running.any()):
                break
            self.trip = outer * op.count + index
            inner = dict(scope)
            inner.update({p: value for (p, _), value in zip(op.carried, carried, strict=True)})
            self.run(op.body.ops, inner)
            following = [inner[name] for name in op.body.yields]
            if until is not None:
                some_stopped = index > 0 or op.only is not None
                if some_stopped and not self.is_sure(self.running.all()):
                    pairs = zip(following, carried, strict=True)
                    following = [either(self.running, new, old) for new, old in pairs]
                trips = trips + self.running
                self.running = self.running & ~self.number(typed(inner[until], Tensor))
            carried = following
        if until is not None:
            self.trips.append(trips)
        self.trip, self.running = outer, before
        scope.update(zip(op.results, carried, strict=True))

    def region(self, op: ir.Segment, inner: Scope) -> Scope:
        """Run a region in a scope of its own; what it yields, by the names of the results."""
        self.run(op.body.ops, inner)
        return dict(zip(op.results, (inner[name] for name in op.body.yields), strict=True))

    def run_segment(self, op: ir.Segment, scope: Scope) -> None:
        """Ops in a scope of their own."""
        scope.update(self.region(op, dict(scope)))
