"""The interpreter's ops that run models, measure, and write text and states; see `OPS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.eager import lanes, regions, sources
from specplan.backends.eager.observed import Observed
from specplan.backends.eager.passes.forward import run_forward
from specplan.backends.eager.values import Scope, held_as, nodes_as
from specplan.backends.ops import lowerings
from specplan.backends.ops.compute import compute
from specplan.backends.ops.lookup import lookup
from specplan.backends.ops.measure import measure, over_batch, said
from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree
from specplan.ir import ops as ir
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import State
from specplan.runtime.executable import forward_variant
from specplan.runtime.uniforms import numbers_of

if TYPE_CHECKING:
    from specplan.backends.eager.session import EagerSession


def _forward(session: EagerSession, op: ir.Forward, scope: Scope) -> None:
    stretch = session.prepared.stretches[id(op)]
    place = session.prepared.places.placements.get((id(op), session.trip))
    ran = run_forward(session, stretch, [nodes_as(scope[name]) for name in op.nodes], place)
    span = stretch.spans[0] if op.layers else None
    variant = forward_variant(span, bool(stretch.gives), stretch.skips.words)
    name = f"{op.keyword}:{variant}" if variant else op.keyword
    session.observed = Observed(name, op.model, ran.width, ran.context)
    scope.update(zip(op.results, ran.rows, strict=True))


def _uniform(session: EagerSession, op: ir.Uniform, scope: Scope) -> None:
    offset = op.offset + session.trip * op.count
    starts = session.batch.starts
    drawn = numbers_of(op.key)(session.batch.seeds, op.stream, starts, offset, op.count)
    scope[op.results[0]] = drawn.to(session.batch.device)


def _emit(session: EagerSession, op: ir.Emit, scope: Scope) -> None:
    path = held_as(scope[op.path], Path)
    tokens, counts = path.tokens.tolist(), path.counts.tolist()
    for row, count in enumerate(counts):
        session.emitted[row] += session.batch.append(row, tokens[row][:count])
    scope[op.results[0]] = path


def _commit(session: EagerSession, op: ir.Commit, scope: Scope) -> None:
    batch, cache = session.batch, session.batch.caches.get(op.state)
    resident = session.prepared.places.residents.get(id(op))
    if cache is not None and resident is not None and cache.placed is not None:
        cache.commit_placed(held_as(scope[op.path], Path), batch.lengths, resident)
        return
    positions, keys, emitted = batch.written()
    if op.state in batch.tracks:
        track = batch.tracks[op.state]
        track.commit(keys, emitted, positions)
        track.commit_deeper(*batch.written_since_root())
        return
    alive = None if op.alive is None else held_as(scope[op.alive], Tree)
    inner = None
    if alive is not None:
        inner = (
            alive.everything
            if not alive.size
            else Nodes(alive, range(1, alive.columns), root=False)
        )
    batch.caches[op.state].commit(keys, emitted, batch.lengths, inner)


def _lookup(session: EagerSession, op: ir.Lookup, scope: Scope) -> None:
    tree, at = held_as(scope[op.tree], Tree), nodes_as(scope[op.at])
    found = sources.asked(session.batch, op, at)
    kind = held_as(session.kind(op), TreeType)
    scope[op.results[0]] = lookup(op, tree, at, continuations=found, kind=kind)


def _store(session: EagerSession, op: ir.Store, scope: Scope) -> None:
    session.batch.values[op.state] = lowerings()[op.keyword](op, scope, session)


def _update(session: EagerSession, op: ir.Update, scope: Scope) -> None:
    rows = None if op.logits is None else held_as(scope[op.logits], Logits)
    sources.update(session.batch, op, held_as(scope[op.tree], Tree), rows)


def _refresh(session: EagerSession, op: ir.Refresh, scope: Scope) -> None:
    cache = session.batch.caches[op.state]
    cache.refresh()
    kept = cache.kept
    if kept is not None:
        longest = max(cache.whole)
        width = -(-longest // kept.retrieved) if kept.retrieved else kept.budget
        name = "retrieved" if kept.retrieved else "sink_recent"
        session.observed = Observed(f"{op.keyword}:{name}", width=width)


def _measure(session: EagerSession, op: ir.Measure, scope: Scope) -> None:
    if isinstance(op.operand, State):
        scope[op.results[0]] = _lag(session, op.operand, op.kind.get("layers"))
        return
    operand: Any = scope[op.operand]
    if op.kind.name.startswith("batch_"):
        taking_part = ~torch.tensor(session.idle_rows)
        scope[op.results[0]] = over_batch(operand, taking_part, op.kind.name)
        return
    if op.kind.name == "said":
        _, keys, emitted = session.batch.written()
        scope[op.results[0]] = said(operand, keys, emitted).cpu()
        return
    scope[op.results[0]] = measure(operand, op.kind).cpu()


def _lag(session: EagerSession, state: State, layers: Any) -> Tensor:
    """Text tokens that some of a cache's layers lack."""
    cache = session.batch.caches[state]
    inside = [
        known for (start, stop), known in cache.lengths.items()
        if start < layers.stop and stop > layers.start
    ]  # fmt: skip
    least = list(map(min, *inside)) if len(inside) > 1 else inside[0]
    lag = [now - done for now, done in zip(session.batch.lengths, least, strict=True)]
    return torch.tensor(lag, dtype=torch.float64)


def _compute(session: EagerSession, op: ir.Compute, scope: Scope) -> None:
    operands = {name: held_as(scope[value], Tensor).tolist() for name, value in op.operands}
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
    ir.Lookup: _lookup,
    ir.Emit: _emit,
    ir.Commit: _commit,
    ir.Store: _store,
    ir.Update: _update,
    ir.Refresh: _refresh,
    ir.Measure: _measure,
    ir.Compute: _compute,
    ir.Repeat: regions.repeat,
    ir.When: regions.when,
    ir.Segment: lanes.segment,
}
"""Ops that touch more than their operands: texts, caches, sources, states, other ops. They are
called with the session, the op and the values so far, to which results are added; every other op
is its lowering."""
