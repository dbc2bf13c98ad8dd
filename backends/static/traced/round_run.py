"""A round run op by op on tensors: eagerly, or traced by a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx.traceback import annotate

from specplan.backends.eager.op_runner import OpRunner, Scope
from specplan.backends.eager.sources import wanted_of
from specplan.backends.eager.state.slots import overlaps
from specplan.backends.ops.accept import Form
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.tensors.values import Logits, Nodes, Tree
from specplan.backends.static.fusing import FusedCache
from specplan.backends.static.interface import RoundTensors, report
from specplan.backends.static.traced.caches import RoundCache
from specplan.backends.static.traced.stateful_ops import OPS, TracedStops
from specplan.backends.static.traced.states import value_of
from specplan.backends.static.traced.texts import Texts
from specplan.ir import ops as ir
from specplan.ir.plan import ValueState
from specplan.ir.text.printer import print_op
from specplan.ir.values import State
from specplan.runtime.models.modules import Module
from specplan.runtime.sampling import SamplingSettings

if TYPE_CHECKING:
    from specplan.backends.static.graph import RoundGraph

PLAN_OP = "plan_op"
"""Of a traced node's `custom` metadata: the op of the plan that it came from, as text."""


class RoundRun(OpRunner):
    """One trace, or one eager run.

    Attributes:
        batch: the texts.
        caches: by name.
        active: requests that take part in the region that runs, bool `[B]`; None for all.
        running: requests for which the trip of a loop that runs now counts, bool `[B]`.
        failed: by request, 1 and the place of the first formula that had no value, int64 `[B]`;
            None where none could fail.
        judged: the rows that the target judged by.
        lookup_column: columns of the host's lookups that were read so far.
        lessons: what sources will learn, see `interface.Lesson`.
    """

    stateful = OPS

    def __init__(self, graph: RoundGraph, given: RoundTensors) -> None:
        self.graph, self.given, self.analysis = graph, given, graph.analysis
        self.scores = graph.scores
        self.batch = Texts(given)
        self.constants: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
        self.caches = {name: self._cache(name) for name in given.stores}
        self.values = dict(given.values)
        self.uniforms = {id(op): first for op, first, _ in graph.inputs.uniforms}
        self.active: Tensor | None = None
        self.running = ~given.done
        self.trip = self.lookup_column = 0
        self.failed: Tensor | None = None
        self.judged: Logits | None = None
        self.lessons: list[Tensor] = []
        self._settings = SamplingSettings(
            temperature=given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            greedy=graph.sampling.greedy,
            truncated=graph.sampling.truncated,
        )

    def _cache(self, name: str) -> RoundCache:
        graph, given, store = self.graph, self.given, self.given.stores[name]
        model, fused = graph.model_of[name], graph.fused
        attended = model in fused.attention
        if model in fused.moves:
            store = FusedCache(store, attended=attended)
        return RoundCache(
            store,
            self.analysis.segments[name],
            self.analysis.plain.get(name),
            name in self.analysis.turning,
            given.resident[name].unbind(1),
            given.lengths,
            graph.pending[name],
            given.slots,
            attended,
        )

    @property
    def models(self) -> Mapping[str, Module]:
        """By their roles."""
        return self.graph.models

    def report(self) -> Tensor:
        """Run all ops; the round's report."""
        self.run(self.graph.item.ops, {})
        for cache in self.caches.values():
            cache.turn(scratch=False)
        tokens, count = self.batch.appended
        resident = [length for cache in self.caches.values() for length in cache.lengths.values()]
        return report(tokens, count, self.batch.done, self.failed, resident, self.lessons)

    def run(self, ops: tuple[ir.Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""
        for op in ops:
            with _annotated(op):
                self.run_op(op, scope)
            for name in self.analysis.spent.get(id(op), ()):
                scope.pop(name, None)

    def taking_part(self) -> Tensor | None:
        """Which requests take part in the region that runs, bool `[B]`; None for all."""
        return self.active

    def counting(self) -> Tensor:
        """See `OpRunner.counting`."""
        wanted = ~self.batch.done
        return wanted if self.active is None else wanted & self.active

    def continuations(self, op: ir.Lookup, at: Nodes) -> Continuations:
        """Those that the host looked up before the round; see `OpRunner.continuations`."""
        size, first = wanted_of(op, at.width).size, self.lookup_column
        self.lookup_column = stop = first + at.width * size
        given = (self.given.lookup_tokens, self.given.lookup_parents, self.given.lookup_live)
        tokens, parents, live = (part[:, first:stop].reshape(-1, size) for part in given)
        return tokens, parents, live

    def lag(self, state: State, layers: Any) -> Tensor:
        """See `OpRunner.lag`."""
        cache = self.caches[state]
        inside = [span for span in cache.segments if overlaps(span, layers)]
        return (self.batch.ends - cache.resident(inside, scratch=False))[:, 0].double()

    def emitted_keys(self) -> tuple[Tensor, Tensor]:
        """See `OpRunner.emitted_keys`."""
        return self.batch.written[1:]

    def stops(self, only: Tensor | None) -> TracedStops:
        """See `OpRunner.stops`."""
        return TracedStops(self, only)

    def root(self, op: ir.Op) -> Tree:
        """See `OpRunner.root`."""
        return self.batch.root(self.scores)

    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """See `OpRunner.state`."""
        state = self.graph.plan.state(op.state)
        assert isinstance(state, ValueState)
        return value_of(state, self.graph.interface.parts(op.state), self.values[op.state])

    def settings(self, op: ir.Op) -> SamplingSettings:
        """See `OpRunner.settings`."""
        return self._settings

    def form(self, op: ir.Op) -> Form:
        """See `OpRunner.form`."""
        return self.graph.form


def _annotated(op: ir.Op) -> AbstractContextManager[None]:
    """Marks the nodes that are traced inside with the op of the plan that they come from."""
    if not torch.compiler.is_exporting():
        return nullcontext()
    return annotate({PLAN_OP: print_op(op).splitlines()[0]})
