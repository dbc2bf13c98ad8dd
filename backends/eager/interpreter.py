"""The interpreter: ops on a batch whose lengths the host knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from specplan.backends.eager import lanes, sources
from specplan.backends.eager.op_runner import OpRunner, Scope, nodes_as, typed
from specplan.backends.eager.passes.forward import run_forward
from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.passes.text import catch_up
from specplan.backends.eager.plan_analysis import PlanAnalysis
from specplan.backends.eager.state.batch import Batch
from specplan.backends.eager.state.caches import Cache
from specplan.backends.eager.state.slots import overlaps
from specplan.backends.ops import lowerings
from specplan.backends.ops.compute import compute
from specplan.backends.ops.lookup import Continuations
from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree
from specplan.backends.ops.when import when as either
from specplan.ir import ops as ir
from specplan.ir.blocks import one_stack
from specplan.ir.values import State
from specplan.runtime.executable import Observer, forward_variant
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sources.registry import sources_of_batch
from specplan.runtime.sources.source import Source
from specplan.runtime.uniforms import numbers_of


@dataclass(frozen=True, slots=True)
class OpRecord:
    """What an observer is told of an op, where types do not say it.

    Attributes:
        name: by which devices know it, `keyword` or `keyword:variant`.
        model: that ran, by its role.
        width: nodes worked on, or query tokens, per request.
        context: slots that were attended to.
    """

    name: str
    model: str | None = None
    width: int = 1
    context: int = 0


class Interpreter(OpRunner):
    """Runs ops one after another, and looks at numbers.

    Attributes:
        active: which requests take part in the region that runs; None for all.
        emitted: what this round has appended to each text.
        caught_up: the last op's model, tokens and seconds of text that it read beforehand.
    """

    batch: Batch

    def __init__(
        self,
        analysis: PlanAnalysis,
        models: Mapping[str, Module],
        requests: Sequence[Request],
        shared: Mapping[str, Source],
        capacity: int | None,
        side_by_side: bool | None = None,
        used_caches: Mapping[str, KVCache] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        plan = analysis.plan
        self.analysis, self.plan, self.models = analysis, plan, models
        self.lanes = lanes.lanes_of(plan, models)
        self.side_by_side = side_by_side
        self.ahead: set[int] = set()
        self.scores = models["target"].logits_dtype if analysis.scored else None
        used = sources_of_batch(plan, models["target"].vocab_size, shared, requests)
        self.batch = Batch(requests, models, used, analysis.speculative, capacity)
        self.batch.add_states(analysis, models, self.scores, used_caches)
        self.emitted: list[list[int]] = []
        self.active: list[bool] | None = None
        self.running = torch.ones(self.batch.size, dtype=torch.bool)
        self.observer: Observer | None = None
        self.op_record: OpRecord | None = None
        self.caught_up: tuple[str, int, float] | None = None

    @property
    def idle_rows(self) -> list[bool]:
        """Requests that are done, or take no part in the region that runs."""
        if self.active is None:
            return self.batch.done
        return [done or not own for done, own in zip(self.batch.done, self.active, strict=True)]

    def taking_part(self) -> Tensor | None:
        """See `OpRunner.taking_part`."""
        if self.active is None:
            return None
        return torch.tensor(self.active, device=self.batch.device)

    def counting(self) -> Tensor:
        """See `OpRunner.counting`; on the host."""
        return ~torch.tensor(self.idle_rows)

    def continuations(self, op: ir.Lookup, at: Nodes) -> Continuations:
        """See `OpRunner.continuations`."""
        return sources.continuations_below(self.batch, op, at)

    def lag(self, state: State, layers: Any) -> Tensor:
        """See `OpRunner.lag`."""
        lengths = self.batch.caches[state].lengths
        inside = [known for span, known in lengths.items() if overlaps(span, layers)]
        least = list(map(min, *inside)) if len(inside) > 1 else inside[0]
        lag = [now - done for now, done in zip(self.batch.lengths, least, strict=True)]
        return torch.tensor(lag, dtype=torch.float64)

    def state(self, op: ir.Load | ir.Store) -> Tree | Tensor:
        """See `OpRunner.state`."""
        return self.batch.values[op.state]

    def number(self, numbers: Tensor) -> Tensor:
        """See `OpRunner.number`: on the host."""
        return numbers.cpu()

    def is_sure(self, flag: Tensor) -> bool:
        """See `OpRunner.is_sure`."""
        return bool(flag)

    def take_in(self, cache: Cache, spec: PassSpec, pending: int = 1) -> None:
        """Run the texts through a model until at most so many tokens of them are left."""
        catch_up(self, cache, spec, pending)

    def run_forward(self, op: ir.Forward, scope: Scope) -> None:
        """A model on nodes, and on the text that its layers lack."""
        spec = self.analysis.pass_specs[id(op)]
        place = self.analysis.places.placements.get((id(op), self.trip))
        ran = run_forward(self, spec, [nodes_as(scope[name]) for name in op.nodes], place)
        span, skips = one_stack(spec.spans if op.layers else (), spec.skips)
        variant = forward_variant(span, op.gives_logits, skips.words)
        name = f"{op.keyword}:{variant}" if variant else op.keyword
        self.op_record = OpRecord(name, op.model, ran.width, ran.context)
        scope.update(zip(op.results, ran.rows, strict=True))

    def run_uniform(self, op: ir.Uniform, scope: Scope) -> None:
        """Numbers that depend on seeds and on the lengths of texts alone."""
        offset, batch = op.offset + self.trip * op.count, self.batch
        drawn = numbers_of(op.key)(batch.seeds, op.stream, batch.starts, offset, op.count)
        scope[op.results[0]] = drawn.to(batch.device)

    def run_emit(self, op: ir.Emit, scope: Scope) -> None:
        """Append to the texts."""
        path = typed(scope[op.path], Path)
        tokens, counts = path.tokens.tolist(), path.counts.tolist()
        for row, count in enumerate(counts):
            self.emitted[row] += self.batch.append(row, tokens[row][:count])
        scope[op.results[0]] = path

    def run_commit(self, op: ir.Commit, scope: Scope) -> None:
        """Keep what was emitted."""
        batch, cache = self.batch, self.batch.caches.get(op.state)
        resident = self.analysis.places.residents.get(id(op))
        if cache is not None and resident is not None and cache.placed is not None:
            cache.commit_placed(typed(scope[op.path], Path), batch.lengths, resident)
            return
        positions, keys, emitted = batch.written
        if op.state in batch.tracks:
            track = batch.tracks[op.state]
            track.commit(keys, emitted, positions)
            track.commit_deeper(*batch.written_since_root())
            return
        alive = None if op.alive is None else typed(scope[op.alive], Tree)
        inner = None
        if alive is not None:
            drafted = Nodes(alive, range(1, alive.columns), root=False)
            inner = drafted if alive.size else alive.everything
        batch.caches[op.state].commit(keys, emitted, batch.lengths, inner)

    def run_store(self, op: ir.Store, scope: Scope) -> None:
        """Leave a number, or a tree, for the next round."""
        self.batch.values[op.state] = lowerings()[op.keyword](op, scope, self)

    def run_update(self, op: ir.Update, scope: Scope) -> None:
        """Teach a source."""
        rows = None if op.logits is None else typed(scope[op.logits], Logits)
        sources.update(self.batch, op, typed(scope[op.tree], Tree), rows)

    def run_refresh(self, op: ir.Refresh, scope: Scope) -> None:
        """Copy a view of a cache anew."""
        cache = self.batch.caches[op.state]
        cache.refresh()
        retention = cache.retention
        if retention is not None:
            longest = max(cache.whole)
            width = -(-longest // retention.retrieved) if retention.retrieved else retention.budget
            name = "retrieved" if retention.retrieved else "sink_recent"
            name = name if cache.prompts is None else "observed"
            self.op_record = OpRecord(f"{op.keyword}:{name}", width=width)

    def run_compute(self, op: ir.Compute, scope: Scope) -> None:
        """Arithmetic on numbers; one that has stopped in a loop may have no value."""
        operands = {name: typed(scope[value], Tensor).tolist() for name, value in op.operands}
        scope[op.results[0]] = compute(
            op.formula,
            {**self._around(), **operands},
            self.batch.size,
            lambda row: self.idle_rows[row] or not self.running[row],
        )

    def _around(self) -> dict[str, list[float]]:
        """What formulas read beside their operands, request by request."""
        batch = self.batch
        active = [row for row, done in enumerate(batch.done) if not done]
        context = max((batch.lengths[row] for row in active), default=0)
        emitted: list[float] = [
            start - len(request.prompt_tokens)
            for start, request in zip(batch.starts, batch.requests, strict=True)
        ]
        return {
            "batch": [len(active)] * batch.size,
            "context": [context] * batch.size,
            "emitted": emitted,
            "phase": [0] * batch.size,
        }

    def run_when(self, op: ir.When, scope: Scope) -> None:
        """Ops for the requests whose flag holds; the others take what there was."""
        flag, outer = typed(scope[op.flag], Tensor).cpu(), self.active
        entered = flag if outer is None else flag & torch.tensor(outer)
        if not bool(entered.any()):
            others = (scope[other] for other in op.otherwise)
            scope.update(zip(op.results, others, strict=True))
            return
        inner = dict(scope)
        self.active = None if bool(entered.all()) else entered.tolist()
        try:
            self.run(op.body.ops, inner)
        finally:
            self.active = outer
        for name, new, other in zip(op.results, op.body.yields, op.otherwise, strict=True):
            scope[name] = either(flag, inner[new], scope[other])

    def run_segment(self, op: ir.Segment, scope: Scope) -> None:
        """Ops in a scope of their own, perhaps beside those of another lane."""
        lanes.segment(self, op, scope)
