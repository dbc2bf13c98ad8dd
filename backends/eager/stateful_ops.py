"""The interpreter's ops that run models, measure, and write text and states; see `OPS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from specplan.backends.eager import lanes, regions, sources
from specplan.backends.eager.op_runner import OpRunner, Scope, nodes_as, typed
from specplan.backends.eager.passes.forward import run_forward
from specplan.backends.ops import lowerings
from specplan.backends.ops.compute import compute
from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree
from specplan.ir import ops as ir
from specplan.runtime.executable import forward_variant
from specplan.runtime.uniforms import numbers_of

if TYPE_CHECKING:
    from specplan.backends.eager.session import EagerSession


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


def _forward(session: EagerSession, op: ir.Forward, scope: Scope) -> None:
    spec = session.analysis.pass_specs[id(op)]
    place = session.analysis.places.placements.get((id(op), session.trip))
    ran = run_forward(session, spec, [nodes_as(scope[name]) for name in op.nodes], place)
    span = spec.spans[0] if op.layers else None
    variant = forward_variant(span, bool(spec.gives), spec.skips.words)
    name = f"{op.keyword}:{variant}" if variant else op.keyword
    session.op_record = OpRecord(name, op.model, ran.width, ran.context)
    scope.update(zip(op.results, ran.rows, strict=True))


def _uniform(session: EagerSession, op: ir.Uniform, scope: Scope) -> None:
    offset = op.offset + session.trip * op.count
    starts = session.batch.starts
    drawn = numbers_of(op.key)(session.batch.seeds, op.stream, starts, offset, op.count)
    scope[op.results[0]] = drawn.to(session.batch.device)


def _emit(session: EagerSession, op: ir.Emit, scope: Scope) -> None:
    path = typed(scope[op.path], Path)
    tokens, counts = path.tokens.tolist(), path.counts.tolist()
    for row, count in enumerate(counts):
        session.emitted[row] += session.batch.append(row, tokens[row][:count])
    scope[op.results[0]] = path


def _commit(session: EagerSession, op: ir.Commit, scope: Scope) -> None:
    batch, cache = session.batch, session.batch.caches.get(op.state)
    resident = session.analysis.places.residents.get(id(op))
    if cache is not None and resident is not None and cache.placed is not None:
        cache.commit_placed(typed(scope[op.path], Path), batch.lengths, resident)
        return
    positions, keys, emitted = batch.written()
    if op.state in batch.tracks:
        track = batch.tracks[op.state]
        track.commit(keys, emitted, positions)
        track.commit_deeper(*batch.written_since_root())
        return
    alive = None if op.alive is None else typed(scope[op.alive], Tree)
    inner = None
    if alive is not None:
        inner = (
            alive.everything
            if not alive.size
            else Nodes(alive, range(1, alive.columns), root=False)
        )
    batch.caches[op.state].commit(keys, emitted, batch.lengths, inner)


def _store(session: EagerSession, op: ir.Store, scope: Scope) -> None:
    session.batch.values[op.state] = lowerings()[op.keyword](op, scope, session)


def _update(session: EagerSession, op: ir.Update, scope: Scope) -> None:
    rows = None if op.logits is None else typed(scope[op.logits], Logits)
    sources.update(session.batch, op, typed(scope[op.tree], Tree), rows)


def _refresh(session: EagerSession, op: ir.Refresh, scope: Scope) -> None:
    cache = session.batch.caches[op.state]
    cache.refresh()
    retention = cache.retention
    if retention is not None:
        longest = max(cache.whole)
        width = -(-longest // retention.retrieved) if retention.retrieved else retention.budget
        name = "retrieved" if retention.retrieved else "sink_recent"
        session.op_record = OpRecord(f"{op.keyword}:{name}", width=width)


def _compute(session: EagerSession, op: ir.Compute, scope: Scope) -> None:
    operands = {name: typed(scope[value], Tensor).tolist() for name, value in op.operands}
    operands = {**_around(session), **operands}
    idle = partial(_is_idle, session)
    scope[op.results[0]] = compute(op.formula, operands, session.batch.size, idle)


def _around(session: EagerSession) -> dict[str, list[float]]:
    """What formulas read beside their operands, request by request."""
    batch = session.batch
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


def _is_idle(session: EagerSession, row: int) -> bool:
    """Whether a request is done, or has stopped in a loop that runs on for others."""
    return session.idle_rows[row] or not all(bool(loop.running[row]) for loop in session.loops)


OPS: dict[type[ir.Op], Callable[[Any, Any, Scope], None]] = {
    ir.Forward: _forward,
    ir.Uniform: _uniform,
    ir.Lookup: OpRunner.lookup,
    ir.Emit: _emit,
    ir.Commit: _commit,
    ir.Store: _store,
    ir.Update: _update,
    ir.Refresh: _refresh,
    ir.Measure: OpRunner.measure,
    ir.Compute: _compute,
    ir.Repeat: OpRunner.repeat,
    ir.When: regions.when,
    ir.Segment: lanes.segment,
}
"""See `OpRunner.stateful`."""
