"""The op `forward`: catch up the text, run one pass, keep what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.eager.caches import Cache
from specplan.backends.eager.passes import Stretch
from specplan.backends.eager.passing import Columns, run_pass
from specplan.backends.eager.placing import Placement
from specplan.backends.ops import forward as columns
from specplan.backends.ops.values import Nodes, Rows

if TYPE_CHECKING:
    from specplan.backends.eager.session import EagerSession


@dataclass(frozen=True)
class Ran:
    """What one pass gave.

    Attributes:
        rows: of each operand, for each thing that it gives.
        width: columns.
        context: slots that were attended to.
    """

    rows: list[Rows]
    width: int
    context: int


def run_forward(
    session: EagerSession,
    stretch: Stretch,
    operands: Sequence[Nodes],
    place: Placement | None = None,
) -> Ran:
    """Run a model on nodes; text that its layers lack comes first.

    Args:
        session: the batch, its caches and tracks.
        stretch: which layers run, from what, and what is kept.
        operands: nodes, of one tree each; the root of all is the same.
        place: their slots, where they are known.
    """
    batch, active = session.batch, session.active
    cache_name = stretch.cache or ""
    cache = batch.caches.get(cache_name)
    with_root = any(nodes.root for nodes in operands)
    if cache is not None:
        if cache.base != batch.lengths:
            cache.begin(batch.lengths)
        if _lag(session, cache, stretch) > max(stretch.pending, 1):
            most = max(stretch.pending, 1)
            if cache.kept is not None:
                most = min(most, cache.kept.chunk + 1)
            own = stretch if not stretch.scratch or cache.of else session.whole[cache_name]
            catch_up(session, cache, own, most)
    texts = 0 if cache is None else _lag(session, cache, stretch)
    inner = tuple(map(_inner, operands))
    call = _columns_of(session, stretch, cache, inner, max(texts, int(with_root)), with_root)
    hidden, live, steps, context = run_pass(session, stretch, cache, call, place)
    if cache is not None and texts and not stretch.scratch:
        _advance(batch.lengths, cache, stretch, active)
    elif cache is not None and call.texts:
        _advance_scratch(batch.lengths, cache, stretch, active, texts == 0)
    rows = _rows(session, stretch, call, hidden, live, steps, operands)
    return Ran(rows, call.tokens.shape[1], context)


def _lag(session: EagerSession, cache: Cache, stretch: Stretch) -> int:
    """Most text tokens that some layer lacks, of any request that takes part."""
    lengths = cache.scratch if stretch.scratch else cache.lengths
    most = 0
    for span in stretch.segments:
        for row, (now, done) in enumerate(zip(session.batch.lengths, lengths[span], strict=True)):
            if now - done > most and (session.active is None or session.active[row]):
                most = now - done
    return most


def _advance(
    lengths: Sequence[int], cache: Cache, stretch: Stretch, active: Sequence[bool] | None
) -> None:
    """Note that layers have taken in all text."""
    for span in stretch.segments:
        known = cache.lengths[span]
        cache.lengths[span] = [
            now if active is None or active[row] else known[row] for row, now in enumerate(lengths)
        ]
        cache.scratch[span] = cache.lengths[span]


def _advance_scratch(
    lengths: Sequence[int],
    cache: Cache,
    stretch: Stretch,
    active: Sequence[bool] | None,
    again: bool,
) -> None:
    """Note what scratch has written over: the root `again`, or all text that was pending."""
    if not stretch.scratch:
        return
    for span in stretch.segments:
        known = cache.lengths[span]
        cache.scratch[span] = list(lengths)
        if again:
            cache.lengths[span] = [min(now - 1, k) for now, k in zip(lengths, known, strict=True)]


def catch_up(session: EagerSession, cache: Cache, stretch: Stretch, pending: int) -> None:
    """Run text through layers until at most `pending` tokens of it are left.

    This is prefill, and the way back for a drafter that a schedule had switched off.
    """
    batch = session.batch
    chunk = session.most_chunk if cache.kept is None else cache.kept.chunk
    active = session.active or [True] * batch.size
    for span in stretch.segments:
        cache.lengths[span] = list(cache.lengths[span])
    while True:
        done = [min(cache.lengths[s][row] for s in stretch.segments) for row in range(batch.size)]
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
        last = max(min(start + width, goal) for start, goal in zip(done, goals, strict=True))
        call = Columns(tokens, positions, live, width, (), last - min(cache.forgotten))
        run_pass(session, stretch, cache, call)
        for row, goal in enumerate(goals):
            for span in stretch.segments:
                reached = min(done[row] + width, goal)
                cache.lengths[span][row] = max(cache.lengths[span][row], reached)
        cache.scratch = dict(cache.lengths)
        cache.forget()


def _inner(nodes: Nodes) -> Nodes:
    """Nodes without the root where it is the first of them."""
    if isinstance(nodes.at, range) and nodes.at.start == 0:
        chosen = None if nodes.chosen is None else nodes.chosen[:, 1:]
        return Nodes(nodes.tree, range(1, nodes.at.stop), chosen, root=False)
    return nodes


def _columns_of(
    session: EagerSession,
    stretch: Stretch,
    cache: Cache | None,
    inner: tuple[Nodes, ...],
    texts: int,
    with_root: bool,
) -> Columns:
    """Pending text, ending with the root, and nodes; no text where none is pending or asked for."""
    batch, device = session.batch, session.batch.device
    ends = batch.ends
    tokens, positions, live = [], [], []
    if texts == 1 and with_root:
        root = batch.root(session.scores)
        tokens.append(root.tokens)
        positions.append(ends - 1)
        live.append(root.live)
    elif texts:
        written = ends + torch.arange(-texts, 0, device=device)
        first = ends - 1
        if cache is not None and stretch.segments:
            lengths = cache.scratch if stretch.scratch else cache.lengths
            known = [lengths[span] for span in stretch.segments]
            least = known[0] if len(known) == 1 else list(map(min, *known))
            resident = torch.tensor(least, device=device)[:, None]
            first = resident.minimum(first) if with_root else resident
        tokens.append(batch.text.gather(1, written.clamp(min=0)))
        positions.append(written)
        live.append((written >= first) & (written >= 0))
    for nodes in inner:
        if not nodes.width:
            continue
        tokens.append(nodes.take(nodes.tree.tokens))
        positions.append(ends - 1 + nodes.take(nodes.tree.depths))
        live.append(columns.drafted(nodes))
    joined = _joined(live)
    if session.active is not None:
        joined = joined & torch.tensor(session.active, device=device)[:, None]
    used = 0
    if cache is not None:
        used = max(a - b for a, b in zip(cache.base, cache.forgotten, strict=True))
    return Columns(_joined(tokens), _joined(positions), joined, texts, inner, used)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _rows(
    session: EagerSession,
    stretch: Stretch,
    call: Columns,
    hidden: Tensor,
    live: Tensor,
    steps: Tensor | None,
    operands: Sequence[Nodes],
) -> list[Rows]:
    """Rows of the nodes of each operand, of everything that the model is to give."""
    if not stretch.gives:
        return []
    first = call.texts - 1 if any(nodes.root for nodes in operands) else call.texts
    if first:
        hidden, live = hidden[:, first:], live[:, first:]
        steps = None if steps is None else steps[:, first:]
    model: Any = session.models[stretch.model]
    outputs = [
        model.rows(hidden, name, steps) if hasattr(model, "rows") else model.logits(hidden)
        for name in stretch.gives
    ]
    found, start = [], call.texts - first
    for nodes, inner in zip(operands, call.inner, strict=True):
        stop = start + inner.width
        for values in outputs:
            found.append(_rows_of(nodes, values, live, start, stop))
        start = stop
    return found


def _rows_of(nodes: Nodes, values: Tensor, live: Tensor, start: int, stop: int) -> Rows:
    """Rows of one operand, whose drafted nodes stand from `start` on; the root is in column 0."""
    if isinstance(nodes.at, range):
        if not nodes.root:
            return Rows(nodes.keys, values[:, start:stop], live[:, start:stop], nodes)
        if start == 1:
            return Rows(nodes.keys, values[:, :stop], live[:, :stop], nodes)
        values = torch.cat([values[:, :1], values[:, start:stop]], 1)
        there = torch.cat([live[:, :1], live[:, start:stop]], 1)
        return Rows(nodes.keys, values, there, nodes)
    if not nodes.root:
        return Rows(nodes.keys, values[:, start:stop], live[:, start:stop], nodes)
    place = torch.arange(start, stop, device=values.device).where(nodes.at > 0, 0)
    rows = values.gather(1, place[:, :, None].expand(-1, -1, values.shape[2]))
    there = live.gather(1, place) & nodes.live
    return Rows(nodes.keys, rows, there, nodes)
