"""The op `forward`: catch up the text, run one pass, keep what is asked for."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.backends.eager.op_runner import OpRunner
from specplan.backends.eager.passes.columns import Columns, Pass
from specplan.backends.eager.passes.levels import Slots, slots_of
from specplan.backends.eager.passes.levels import columns_of as node_columns
from specplan.backends.eager.passes.logits import rows_of_pass
from specplan.backends.eager.passes.one_pass import run_pass
from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.state.batch import MOST_CHUNK
from specplan.backends.eager.state.caches import Cache
from specplan.backends.eager.state.slots import NodeSlots
from specplan.backends.eager.state.static_slots import Fresh, Placement
from specplan.backends.ops import forward as columns
from specplan.backends.ops.tensors.values import Logits, Nodes
from specplan.ir.errors import MissingCapabilityError

if TYPE_CHECKING:
    from specplan.backends.eager.interpreter import Interpreter


@dataclass(frozen=True)
class Ran:
    """What one pass gave.

    Attributes:
        rows: of each operand, for each thing that it gives.
        width: columns.
        context: slots that were attended to.
    """

    rows: list[Logits]
    width: int
    context: int


def run_forward(
    session: Interpreter,
    spec: PassSpec,
    operands: Sequence[Nodes],
    place: Placement | Fresh | None = None,
) -> Ran:
    """Run a model on nodes; text that its layers lack comes first.

    Args:
        session: the batch, its caches and tracks.
        spec: which layers run, from what, and what is kept.
        operands: nodes, of one tree each; the root of all is the same.
        place: their slots, where they are known.
    """
    batch, active = session.batch, session.active
    cache = batch.caches.get(spec.cache or "")
    if cache is not None:
        if cache.base != batch.lengths:
            cache.begin(batch.lengths)
        settle(session, cache, spec)
    lags = [0] * batch.size if cache is None else _lags(session, cache, spec)
    texts = max(lags) if spec.feeds else min(max(lags), max(spec.pending, 1))
    call = columns_of(session, spec, cache, operands, texts)
    if max(lags) > texts:  # what they are to attend to is not there yet
        waits = torch.tensor(lags, device=batch.device)[:, None] > texts
        call, place = replace(call, live=call.live & ~waits), None
    passed = run_pass(Pass(session, spec, call), cache, place)
    reached = _read(session, batch.lengths, spec, call, passed.live)
    if max(lags) > texts:
        reached = [now if lag <= texts else 0 for now, lag in zip(reached, lags, strict=True)]
        passed = replace(passed, sure=False)
    if cache is not None and texts and not spec.scratch:
        _advance(reached, cache, spec, active)
    elif cache is not None and call.texts:
        _advance_scratch(reached, cache, spec)
    rows = rows_of_pass(session, spec, call, passed, operands)
    if batch.grammars is not None:
        rows = batch.grammars.of_pass(rows, operands, spec.gives)
    return Ran(rows, call.tokens.shape[1], passed.context)


def settle(session: Interpreter, cache: Cache, spec: PassSpec) -> None:
    """Run text until no more of it is missing than a pass may catch up."""
    most = _most(cache, spec)
    if max(_lags(session, cache, spec)) > most and not spec.feeds:
        early = spec.scratch and not cache.of and spec.features is None
        own = session.analysis.whole[spec.cache or ""] if early else spec
        catch_up(session, cache, own, most)


def reads_more(session: Interpreter, cache: Cache, spec: PassSpec) -> bool:
    """Whether a pass has to read more text than it may catch up, all of it at once."""
    return spec.feeds and max(_lags(session, cache, spec)) > _most(cache, spec)


def _most(cache: Cache, spec: PassSpec) -> int:
    """Text tokens that a pass may catch up."""
    most = max(spec.pending, 1)
    return most if cache.retention is None else min(most, cache.retention.chunk + 1)


def _lags(session: Interpreter, cache: Cache, spec: PassSpec) -> list[int]:
    """Text tokens that some layer lacks, of each request; 0 of those that do not take part."""
    lengths = cache.scratch if spec.scratch else cache.lengths
    lags = [0] * session.batch.size
    for span in spec.segments:
        for row, (now, done) in enumerate(zip(session.batch.lengths, lengths[span], strict=True)):
            if now - done > lags[row] and (session.active is None or session.active[row]):
                lags[row] = now - done
    return lags


def _advance(
    lengths: Sequence[int], cache: Cache, spec: PassSpec, active: Sequence[bool] | None
) -> None:
    """Note that layers have taken in so much text."""
    for span in spec.segments:
        known = cache.lengths[span]
        cache.lengths[span] = [
            max(now, known[row]) if active is None or active[row] else known[row]
            for row, now in enumerate(lengths)
        ]
        cache.scratch[span] = cache.lengths[span]


def _read(
    session: Interpreter, lengths: Sequence[int], spec: PassSpec, call: Columns, live: Tensor
) -> Sequence[int]:
    """How far a pass that was to read all text has come: up to the first state that is missing."""
    if spec.features is None or spec.inside or not call.texts:
        return lengths
    lacking = lacking_text(session, spec, call, live)
    ends = torch.tensor(lengths, device=live.device)[:, None]
    reached: list[int] = call.positions[:, : call.texts].where(lacking, ends).amin(1).tolist()
    return reached


def lacking_text(session: OpRunner, spec: PassSpec, call: Columns, live: Tensor) -> Tensor:
    """Columns of text that are to run again when their states are there, bool `[B, texts]`.

    Those that could not run, and a last token that entered without its state.
    """
    lacking = call.live[:, : call.texts] & ~live[:, : call.texts]
    if spec.features is not None and session.models[spec.model].optional_features:
        above = call.positions[:, call.texts - 1 : call.texts] - spec.shift
        known = session.batch.tracks[spec.features].known.gather(1, above.clamp(min=0))
        early = call.live[:, call.texts - 1 : call.texts] & ~known & (above >= 0)
        lacking = torch.cat([lacking[:, :-1], lacking[:, -1:] | early], 1)
    return lacking


def _advance_scratch(lengths: Sequence[int], cache: Cache, spec: PassSpec) -> None:
    """Note that scratch has taken in all text that was pending."""
    for span in spec.segments if spec.scratch else ():
        cache.scratch[span] = list(map(max, lengths, cache.scratch[span]))


def catch_up(session: Interpreter, cache: Cache, spec: PassSpec, pending: int) -> None:
    """Run text through layers until at most `pending` tokens of it are left.

    This is prefill, and the way back for a drafter that a schedule had switched off.
    """
    batch = session.batch
    chunk = MOST_CHUNK if cache.retention is None else cache.retention.chunk
    active = session.active or [True] * batch.size
    while True:
        done = [min(cache.lengths[s][row] for s in spec.segments) for row in range(batch.size)]
        goals = [
            now - pending if active[row] else done[row] for row, now in enumerate(batch.lengths)
        ]
        width = max(goal - start for goal, start in zip(goals, done, strict=True))
        if width <= 0:
            return
        width = min(width, chunk)
        starts = torch.tensor(done, device=batch.device)[:, None]
        positions = starts + torch.arange(width, device=batch.device)
        live = positions < torch.tensor(goals, device=batch.device)[:, None]
        place = positions.clamp(max=batch.text.shape[1] - 1)
        tokens = batch.text.gather(1, place) * live
        ends = [min(start + width, goal) for start, goal in zip(done, goals, strict=True)]
        used = max(map(operator.sub, ends, cache.forgotten))
        call = Columns(tokens, positions, live, width, (), used)
        there = run_pass(Pass(session, spec, call), cache).live
        reached = _read(session, ends, spec, call, there)
        if reached is not ends and all(map(operator.le, reached, done)):
            return  # what the next tokens are to read is not there yet
        took_in(reached, cache, spec, active)


def took_in(
    lengths: Sequence[int], cache: Cache, spec: PassSpec, active: Sequence[bool] | None
) -> None:
    """Note that text ran so far through layers, ahead of any round."""
    _advance(lengths, cache, spec, active)
    cache.scratch = dict(cache.lengths)
    cache.forget()


def inner_of(nodes: Nodes) -> Nodes:
    """Nodes without the root where it is the first of them."""
    if isinstance(nodes.at, range) and nodes.at.start == 0:
        chosen = None if nodes.chosen is None else nodes.chosen[:, 1:]
        return Nodes(nodes.tree, range(1, nodes.at.stop), chosen, root=False)
    return nodes


def columns_of(
    session: OpRunner,
    spec: PassSpec,
    cache: NodeSlots | None,
    operands: Sequence[Nodes],
    texts: int,
) -> Columns:
    """Text, nodes, and slots that look ahead of them.

    Args:
        session: the texts.
        spec: what will run.
        cache: what it writes.
        operands: nodes, of one tree each.
        texts: columns of text that may be pending, which ends with the root.
    """
    batch, ends = session.batch, session.batch.ends
    with_root = any(nodes.root for nodes in operands)
    rooted = with_root and not texts and _may_hold_root(spec, cache, operands)
    if with_root and not rooted:
        texts = max(texts, 1)
    inner, slots = tuple(map(inner_of, operands)), _slots(session, spec, operands)
    ahead = None
    if slots:
        ahead = Slots(node_columns(operands, inner, texts), _levels_ahead(session, spec))
        inner = (*inner, *slots)
    tokens, positions, live = [], [], []
    if texts == 1 and with_root:
        root = batch.root(session.scores)
        tokens.append(root.tokens)
        positions.append(batch.last)
        live.append(root.live)
    elif texts:
        written = ends + torch.arange(-texts, 0, device=ends.device)
        first = batch.last
        if cache is not None and spec.segments:
            resident = cache.resident(spec.segments, spec.scratch)
            first = resident.minimum(first) if with_root else resident
        tokens.append(batch.text.gather(1, written.clamp(min=0)))
        positions.append(written)
        live.append((written >= first) & (written >= 0))
    for nodes in inner:
        if not nodes.width:
            continue
        tokens.append(nodes.take(nodes.tree.tokens))
        positions.append(batch.last + nodes.take(nodes.tree.depths))
        live.append(nodes.live if rooted else columns.drafted(nodes))
    joined = _joined(live)
    taking_part = session.taking_part()
    if taking_part is not None:
        joined = joined & taking_part[:, None]
    used = 0 if cache is None else cache.text_slots
    return Columns(_joined(tokens), _joined(positions), joined, texts, inner, used, ahead, rooted)


def _may_hold_root(spec: PassSpec, cache: NodeSlots | None, operands: Sequence[Nodes]) -> bool:
    """Whether the root can run as one of the nodes, where data says which these are.

    It writes over what it wrote as text, which has to be the same.
    """
    plain = spec.features is None and not spec.keeps and spec.most_levels == 1
    again = cache is not None and not spec.scratch and not spec.block
    return plain and again and len(operands) == 1 and isinstance(operands[0].at, Tensor)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _slots(session: OpRunner, spec: PassSpec, operands: Sequence[Nodes]) -> tuple[Nodes, ...]:
    """Slots below the nodes of a pass, where its model looks ahead by them."""
    levels = _levels_ahead(session, spec)
    if not levels:
        return ()
    if len(operands) > 1:
        raise MissingCapabilityError("slots stand below the nodes of one tree", where="eager")
    return (slots_of(operands[0], levels),)


def _levels_ahead(session: OpRunner, spec: PassSpec) -> int:
    """Slots below each node of a pass."""
    model = session.models[spec.model]
    return spec.most_levels - 1 + model.slots_first if model.by_slots and spec.pieces else 0
