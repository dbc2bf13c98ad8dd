"""A round run op by op on tensors: eagerly, or traced by a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fx.traceback import annotate

from specplan.backends.eager.op_runner import OpRunner
from specplan.backends.eager.sources import judged_tokens, wanted_of
from specplan.backends.eager.values import Scope, nodes_as, typed
from specplan.backends.ops import lowerings
from specplan.backends.ops.accept import Form
from specplan.backends.ops.lookup import lookup
from specplan.backends.ops.tensors.trees import padded_to
from specplan.backends.ops.tensors.values import Logits, Path, Tree
from specplan.backends.static.fusing import FusedCache
from specplan.backends.static.interface import RoundTensors, report
from specplan.backends.static.traced import loops, scalars
from specplan.backends.static.traced.caches import RoundCache
from specplan.backends.static.traced.forward import run_forward
from specplan.backends.static.traced.states import parts_of, value_of
from specplan.backends.static.traced.texts import Texts
from specplan.ir import ops as ir
from specplan.ir.plan import ValueState
from specplan.ir.text.printer import print_op
from specplan.ir.types.value_types import TreeType
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

    def __init__(self, graph: RoundGraph, given: RoundTensors) -> None:
        self.graph, self.given, self.prepared = graph, given, graph.prepared
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
            self.prepared.segments[name],
            self.prepared.plain.get(name),
            name in self.prepared.turning,
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
            for name in self.prepared.spent.get(id(op), ()):
                scope.pop(name, None)

    def taking_part(self) -> Tensor | None:
        """Which requests take part in the region that runs, bool `[B]`; None for all."""
        return self.active

    def counting(self) -> Tensor:
        """Which requests matter in it, bool `[B]`: those that are done do not."""
        wanted = ~self.batch.done
        return wanted if self.active is None else wanted & self.active

    def forward(self, op: ir.Forward, scope: Scope) -> None:
        """A model on nodes, and on as much text as may be pending."""
        stretch = self.prepared.stretches[id(op)]
        place = self.prepared.places.placements.get((id(op), self.trip))
        rows = run_forward(self, stretch, [nodes_as(scope[name]) for name in op.nodes], place)
        scope.update(zip(op.results, rows, strict=True))

    def uniform(self, op: ir.Uniform, scope: Scope) -> None:
        """Numbers that the host drew."""
        first = self.uniforms[id(op)] + self.trip * op.count
        scope[op.results[0]] = self.given.uniforms[:, first : first + op.count]

    def lookup(self, op: ir.Lookup, scope: Scope) -> None:
        """Continuations that the host looked up."""
        tree, at = typed(scope[op.tree], Tree), nodes_as(scope[op.at])
        size, first = wanted_of(op, at.width).size, self.lookup_column
        self.lookup_column = stop = first + at.width * size
        given = (self.given.lookup_tokens, self.given.lookup_parents, self.given.lookup_live)
        tokens, parents, live = (part[:, first:stop].reshape(-1, size) for part in given)
        kind = typed(self.kind(op), TreeType)
        scope[op.results[0]] = lookup(op, tree, at, found=(tokens, parents, live), kind=kind)

    def update(self, op: ir.Update, scope: Scope) -> None:
        """What a source learns once the round has run."""
        lesson = next((one for one in self.graph.inputs.lessons if one.op is op), None)
        if lesson is None or not lesson.numbers:
            return  # the host has the texts
        tree = padded_to(typed(scope[op.tree], Tree), lesson.columns)
        if op.logits is None:
            self.lessons += [tree.tokens, tree.parents, tree.live]
        else:
            rows = typed(scope[op.logits], Logits)
            self.lessons += judged_tokens(tree, rows, lesson.width)

    def accept(self, op: ir.Accept, scope: Scope) -> None:
        """Judge a tree."""
        if op.target is not None:
            self.judged = typed(scope[op.target], Logits)
        scope[op.results[0]] = lowerings()[op.keyword](op, scope, self)

    def emit(self, op: ir.Emit, scope: Scope) -> None:
        """Append to the texts."""
        path = typed(scope[op.path], Path)
        self.batch.emit(path, self.batch.root(self.scores))
        for cache in self.caches.values():
            cache.grown(path.tokens.shape[1])
        scope[op.results[0]] = path

    def commit(self, op: ir.Commit, scope: Scope) -> None:
        """Keep what was emitted."""
        path, (_, count) = typed(scope[op.path], Path), self.batch.appended
        positions, _, _ = self.batch.written
        emitted = count.minimum(path.accepted)
        if op.state in self.batch.tracks:
            width = path.keys.shape[1]
            there = torch.arange(width, device=emitted.device) < emitted[:, None]
            self.batch.tracks[op.state].commit(path.keys, there, positions[:, :width])
            return
        cache, resident = self.caches[op.state], self.prepared.places.residents.get(id(op))
        if not cache.taken:
            return
        if resident is not None and cache.placed is not None:
            cache.commit_placed(path, emitted, resident)
        else:
            cache.commit(path, emitted)

    def store(self, op: ir.Store, scope: Scope) -> None:
        """Leave a number, or a tree, for the next round."""
        left = lowerings()[op.keyword](op, scope, self)
        like = self.given.text[:, :1].new_zeros(
            (self.batch.size, self.models["target"].vocab_size),
            dtype=self.models["target"].logits_dtype,
        )
        names = self.graph.interface.parts(op.state)
        parts = parts_of(left, names, like)
        for known, new in zip(self.values[op.state], parts, strict=True):
            known.copy_(new)

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


RoundRun.stateful = {
    ir.Forward: RoundRun.forward,
    ir.Uniform: RoundRun.uniform,
    ir.Lookup: RoundRun.lookup,
    ir.Update: RoundRun.update,
    ir.Accept: RoundRun.accept,
    ir.Emit: RoundRun.emit,
    ir.Commit: RoundRun.commit,
    ir.Store: RoundRun.store,
    ir.Measure: scalars.measure,
    ir.Compute: scalars.compute,
    ir.Repeat: loops.repeat,
    ir.When: loops.when,
    ir.Segment: loops.segment,
}
