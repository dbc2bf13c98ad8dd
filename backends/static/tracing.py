"""A run of a round on tensors, op by op: eager, or traced by a compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx.traceback import annotate

from specplan.backends.eager.sources import taught_rows, wanted_of
from specplan.backends.eager.values import Scope, held_as, nodes_as
from specplan.backends.ops import lowerings
from specplan.backends.ops.accept import Form
from specplan.backends.ops.lookup import lookup
from specplan.backends.ops.tensors.trees import padded_to
from specplan.backends.ops.tensors.values import Logits, Path, Tree
from specplan.backends.static.interface import RoundTensors, packed
from specplan.backends.static.rewrites.fusing import FusedCache
from specplan.backends.static.traced import loops, scalars
from specplan.backends.static.traced.caches import RoundCache
from specplan.backends.static.traced.forward import run_forward
from specplan.backends.static.traced.states import parts_of, value_of
from specplan.backends.static.traced.texts import Texts
from specplan.ir import ops as ir
from specplan.ir.plan import ValueState
from specplan.ir.text.printer import print_op
from specplan.ir.types.value_types import TreeType, Type
from specplan.ir.values import Value
from specplan.runtime.models.modules import Module
from specplan.runtime.sampling import SamplingSettings

if TYPE_CHECKING:
    from specplan.backends.static.graph import RoundGraph

PLAN_OP = "plan_op"
"""Of a traced node's `custom` metadata: the op of the plan that it came from, as text."""


class RoundRun:
    """One trace, or one eager run.

    Attributes:
        batch: the texts.
        caches: by name.
        active: requests that take part in the region that runs, bool `[B]`; None for all.
        running: requests for which the trip of a loop that runs now counts, bool `[B]`.
        trip: of all loops around the op that runs, counted together.
        failed: by request, 1 and the place of the first formula that had no value, int64 `[B]`;
            None where none could fail.
        judged: the rows that the target judged by.
        found: columns of what the host has found that were read so far.
        taught: what sources are to be taught, see `interface.Taught`.
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
        self.trip = self.found = 0
        self.failed: Tensor | None = None
        self.judged: Logits | None = None
        self.taught: list[Tensor] = []
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

    def result(self) -> Tensor:
        """Run all ops; what the host is told."""
        self.run(self.graph.item.ops, {})
        for cache in self.caches.values():
            cache.turn(scratch=False)
        tokens, count = self.batch.told
        resident = [length for cache in self.caches.values() for length in cache.lengths.values()]
        return packed(tokens, count, self.batch.done, self.failed, resident, self.taught)

    def run(self, ops: tuple[ir.Op, ...], scope: Scope) -> None:
        """Run ops in order; `scope` gains their results, and loses what nothing reads any more."""
        for op in ops:
            with _told_apart(op):
                special = _OPS.get(type(op))
                if special is not None:
                    special(self, op, scope)
                else:
                    scope[op.results[0]] = lowerings()[op.keyword](op, scope, self)
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
        """Numbers that the host has drawn."""
        first = self.uniforms[id(op)] + self.trip * op.count
        scope[op.results[0]] = self.given.uniforms[:, first : first + op.count]

    def lookup(self, op: ir.Lookup, scope: Scope) -> None:
        """Continuations of the text that the host has found."""
        tree, at = held_as(scope[op.tree], Tree), nodes_as(scope[op.at])
        size, first = wanted_of(op, at.width).size, self.found
        self.found += at.width * size
        given = (self.given.found, self.given.found_parents, self.given.found_live)
        tokens, parents, live = (part[:, first : self.found].reshape(-1, size) for part in given)
        kind = held_as(self.kind(op), TreeType)
        scope[op.results[0]] = lookup(
            op, tree, at, continuations=(tokens, parents, live), kind=kind
        )

    def update(self, op: ir.Update, scope: Scope) -> None:
        """What a source is taught once the round has run; texts the host has."""
        taught = next((one for one in self.graph.inputs.taught if one.op is op), None)
        if taught is None or not taught.told:
            return  # the host has the texts
        tree = padded_to(held_as(scope[op.tree], Tree), taught.columns)
        if op.logits is None:
            self.taught += [tree.tokens, tree.parents, tree.live]
        else:
            rows = held_as(scope[op.logits], Logits)
            self.taught += taught_rows(tree, rows, taught.width)

    def accept(self, op: ir.Accept, scope: Scope) -> None:
        """Judge a tree."""
        if op.target is not None:
            self.judged = held_as(scope[op.target], Logits)
        scope[op.results[0]] = lowerings()[op.keyword](op, scope, self)

    def emit(self, op: ir.Emit, scope: Scope) -> None:
        """Append to the texts."""
        path = held_as(scope[op.path], Path)
        self.batch.emit(path, self.batch.root(self.scores))
        for cache in self.caches.values():
            cache.grown(path.tokens.shape[1])
        scope[op.results[0]] = path

    def commit(self, op: ir.Commit, scope: Scope) -> None:
        """Keep what was emitted."""
        path, (_, count) = held_as(scope[op.path], Path), self.batch.told
        positions, _, _ = self.batch.written
        kept = count.minimum(path.accepted)
        if op.state in self.batch.tracks:
            width = path.keys.shape[1]
            there = torch.arange(width, device=kept.device) < kept[:, None]
            self.batch.tracks[op.state].commit(path.keys, there, positions[:, :width])
            return
        cache, resident = self.caches[op.state], self.prepared.places.residents.get(id(op))
        if not cache.taken:
            return
        if resident is not None and cache.placed is not None:
            cache.commit_placed(path, kept, resident)
        else:
            cache.commit(path, kept)

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

    # what lowerings ask: see `specplan.backends.ops.Runner`

    def kind(self, op: ir.Op) -> Type:
        """See `Runner.kind`."""
        return self.prepared.steps[id(op), self.trip].gives[0]

    def reads(self, op: ir.Op) -> Mapping[Value, Type]:
        """See `Runner.reads`."""
        return self.prepared.steps[id(op), self.trip].reads

    def root(self, op: ir.Op) -> Tree:
        """See `Runner.root`."""
        return self.batch.root(self.scores)

    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """See `Runner.state`."""
        state = self.graph.plan.state(op.state)
        assert isinstance(state, ValueState)
        return value_of(state, self.graph.interface.parts(op.state), self.values[op.state])

    def keeps_probs(self, op: ir.Store) -> bool:
        """See `Runner.keeps_probs`."""
        return op.state in self.prepared.drawn

    def settings(self, op: ir.Op) -> SamplingSettings:
        """See `Runner.settings`."""
        return self._settings

    def remembers(self, op: ir.Op) -> bool:
        """See `Runner.remembers`."""
        return self.prepared.mixes

    def most(self, op: ir.Op) -> int | None:
        """See `Runner.most`."""
        return self.prepared.judged.get(id(op))

    def form(self, op: ir.Op) -> Form:
        """See `Runner.form`."""
        return self.graph.form


def _told_apart(op: ir.Op) -> AbstractContextManager[None]:
    """Says of what is traced here which op of the plan it comes from."""
    if not torch.compiler.is_exporting():
        return nullcontext()
    return annotate({PLAN_OP: print_op(op).splitlines()[0]})


_OPS: dict[type[ir.Op], Callable[[RoundRun, Any, Scope], None]] = {
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
"""Ops that touch more than their operands; every other op is its lowering."""
