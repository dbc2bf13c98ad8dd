"""The op `forward`: catch up the text, run one pass, keep what is asked for."""

from __future__ import annotations

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
from specplan.backends.eager.passes.text import (
    advance,
    advance_scratch,
    how_far,
    packing_of,
    settle,
    text_to_read,
)
from specplan.backends.eager.state.placements import Fresh, Placement
from specplan.backends.eager.state.slots import NodeSlots
from specplan.backends.ops import forward as columns
from specplan.backends.ops.tensors.values import Logits, Nodes, part
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
    batch = session.batch
    cache = batch.caches.get(spec.cache or "")
    if cache is not None:
        if cache.base != batch.lengths:
            cache.begin(batch.lengths)
        if spec.most is None:
            settle(session, cache, spec)
    reads = text_to_read(session, spec, cache, operands)
    call = columns_of(session, spec, cache, operands, reads.columns, reads.stops)
    waits = None if reads.waits is None else torch.tensor(reads.waits, device=batch.device)[:, None]
    if waits is not None:  # what their nodes are to attend to is not there yet
        live = [part(call.live, 0, call.texts), part(call.live, call.texts) & ~waits]
        call, place = replace(call, live=torch.cat(live, 1)), None
    if reads.shared:
        lines = reads.lines(call.texts, call.tokens.shape[1])
        call = replace(call, packing=packing_of(session, spec, lines, call.tokens.shape[1]))
    passed = run_pass(Pass(session, spec, call, place), cache)
    reached = how_far(session, reads.stops or batch.lengths, spec, call, passed.live)
    if waits is not None:
        passed = replace(passed, live=passed.live & ~waits, sure=False)
    if cache is not None and reads.columns and not spec.scratch:
        advance(reached, cache, spec, session.active)
    elif cache is not None and call.texts:
        advance_scratch(reached, cache, spec)
    rows = rows_of_pass(session, spec, call, passed, operands)
    if batch.grammars is not None:
        rows = batch.grammars.of_pass(rows, operands, spec.gives)
    return Ran(rows, call.tokens.shape[1], passed.context)


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
    stops: Sequence[int] | None = None,
) -> Columns:
    """Text, nodes, and slots that look ahead of them.

    Args:
        session: the texts.
        spec: what will run.
        cache: what it writes.
        operands: nodes, of one tree each.
        texts: columns of text that may be pending, which ends with the root.
        stops: how far each text is read, where that is not its end.
    """
    batch, ends = session.batch, session.batch.ends
    if stops is not None:
        ends = torch.tensor(stops, device=ends.device)[:, None]
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
    if texts == 1 and with_root and stops is None:
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
