"""The op `forward`: catch up the text, run one pass, keep what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.eager.caches import Cache, Track
from specplan.backends.eager.passes import Stretch
from specplan.backends.eager.placing import Placement
from specplan.backends.ops import forward as columns
from specplan.backends.ops.values import Nodes, Rows, places_of

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


@dataclass(frozen=True)
class _Columns:
    """Columns of a pass, those of text first.

    Attributes:
        tokens: int64 `[B, T]`.
        positions: int64 `[B, T]`.
        live: bool `[B, T]`.
        texts: how many are of text.
        inner: drafted nodes, operand by operand.
        used: slots of text that are attended to.
    """

    tokens: Tensor
    positions: Tensor
    live: Tensor
    texts: int
    inner: tuple[Nodes, ...]
    used: int


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
    hidden, live, steps, context = _run(session, stretch, cache, call, place)
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
        call = _Columns(tokens, positions, live, width, (), last - min(cache.forgotten))
        _run(session, stretch, cache, call)
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
) -> _Columns:
    """Pending text, ending with the root, and nodes; no text where none is pending or asked for."""
    batch, device = session.batch, session.batch.device
    ends = batch.ends
    tokens, positions, live = [], [], []
    if texts:
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
    return _Columns(_joined(tokens), _joined(positions), joined, texts, inner, used)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _run(
    session: EagerSession,
    stretch: Stretch,
    cache: Cache | None,
    call: _Columns,
    place: Placement | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Hidden states of all columns `[B, T, hidden]`, which there are, their steps, and slots."""
    model: Any = session.models[stretch.model]
    hidden, live, steps = _entered(session, stretch, model, call)
    if not stretch.pieces:
        assert hidden is not None, "what runs no layer reads hidden states"
        if stretch.keeps:
            _keep(session, stretch, call, {-1: hidden}, live, steps)
        return hidden, live, steps, 0
    texts, nodes = call.texts, call.tokens.shape[1] - call.texts
    if cache is None:  # a pass that leaves nothing behind
        store = model.new_cache(session.batch.size, call.tokens.shape[1])
        cache = Cache(model, store, ((0, 0),))
        cache.begin([texts] * session.batch.size)
        ends = torch.full_like(session.batch.ends, texts)
        text_slots = torch.arange(texts, device=ends.device).expand(len(ends), -1)
        used = texts
    else:
        ends, text_slots, used = session.batch.ends, call.positions[:, :texts], call.used
        if any(cache.forgotten):
            ends, text_slots = ends - cache.shift, text_slots - cache.shift
    slots, seen = text_slots, None
    if nodes:
        given = None if place is None else _known(session, stretch, cache, call, place)
        if given is None:
            offsets, seen, there = _placed(stretch, cache, call.inner, live[:, texts:])
            live = torch.cat([live[:, :texts], there], 1) if texts else there
        else:
            offsets, seen = given
            _note(cache, call.inner[0].keys, live[:, texts:])
        slots = torch.cat([text_slots, ends + offsets], 1) if texts else ends + offsets
    slots = slots.where(live, cache.store.trash)
    used += cache.taken
    mask = columns.attention_mask(slots, texts, ends, seen, used)
    if stretch.block:
        together = torch.zeros_like(mask[:, 0]).scatter_reduce(
            1, slots.clamp(max=used - 1), live, "amax"
        )
        mask = mask | together[:, None, :]
    latest = None
    if cache.store.queries is not None and texts and not stretch.scratch:
        latest = _latest(live[:, :texts])
    arguments = (call.tokens, call.positions, slots, mask, cache.store)
    hidden = _layers(session, stretch, model, arguments, hidden, live, steps, call, latest)
    return hidden, live, steps, used


def _latest(live: Tensor) -> Tensor:
    """The last column of text of each request, int64 `[B]`; -1 where it has none."""
    places = torch.arange(live.shape[1], device=live.device)
    return places.where(live, -1).amax(1)


def _known(
    session: EagerSession, stretch: Stretch, cache: Cache, call: _Columns, place: Placement
) -> tuple[Tensor, Tensor | None] | None:
    """Slots of nodes and what they see of nodes, where both are constants in this pass."""
    width = call.tokens.shape[1] - call.texts
    if cache.taken != place.before or session.active is not None or stretch.features is not None:
        return None
    if width > len(place.offsets):
        return None
    found = session.constants.get((id(place), width))
    if found is None:
        offsets = torch.tensor(place.offsets[:width], device=call.tokens.device)
        seen = None
        if not place.causal:
            rows = [[slot in mine for slot in range(place.before + width)] for mine in place.seen]
            seen = torch.tensor(rows[:width], device=offsets.device)[None]
        found = session.constants[id(place), width] = (offsets, seen)
    return found


def _note(cache: Cache, keys: Tensor, live: Tensor) -> None:
    """Note nodes that have the next slots."""
    before = cache.taken
    cache.keys = torch.cat([cache.keys, keys], 1) if before else keys
    cache.there = torch.cat([cache.there, live], 1) if before else live
    cache.twins = True


def _entered(
    session: EagerSession, stretch: Stretch, model: Any, call: _Columns
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """What enters the first layer, None for the tokens' embeddings; which columns there are."""
    enter: Callable[..., Tensor] | None = getattr(model, "enter", None)
    if stretch.features is None:
        if enter is None:
            return None, call.live, None
        steps = torch.zeros_like(call.tokens)
        return enter(call.tokens, call.positions, None, None, steps), call.live, steps
    track = session.batch.tracks[stretch.features]
    above = call.positions - stretch.shift
    states, steps, known = track.read(above, _keys_above(session, stretch, call, above))
    live = call.live
    if not getattr(model, "optional_features", False):
        live = live & (known | (above < 0))
    if stretch.inside:
        return states, live, steps
    steps = steps + 1 if stretch.own else torch.zeros_like(steps)
    assert enter is not None, "a model that reads another one's states has a way in"
    return enter(call.tokens, call.positions, states, known, steps), live, steps


def _keys_above(session: EagerSession, stretch: Stretch, call: _Columns, above: Tensor) -> Tensor:
    """Keys of the tokens `shift` above those of a pass, int64 `[B, T]`."""
    texts, keys = session.batch.keys, []
    place = above.clamp(0, texts.shape[1] - 1)
    found = texts.gather(1, place)
    if not call.inner:
        return found
    if call.texts:
        keys.append(found[:, : call.texts])
    start = call.texts
    for nodes in call.inner:
        stop = start + nodes.width
        column = nodes.columns
        for _ in range(stretch.shift):
            column = nodes.tree.parents.gather(1, column)
        drafted = nodes.take(nodes.tree.depths) >= stretch.shift
        mine = nodes.tree.keys.gather(1, column)
        keys.append(torch.where(drafted, mine, found[:, start:stop]))
        start = stop
    return torch.cat(keys, 1)


def _placed(
    stretch: Stretch, cache: Cache, inner: tuple[Nodes, ...], live: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Slots of nodes counted from the text's end, what they see of nodes, and which can run."""
    cache.single()
    keys = inner[0].keys if len(inner) == 1 else torch.cat([nodes.keys for nodes in inner], 1)
    before, width = cache.taken, keys.shape[1]
    known = torch.cat([cache.keys, keys], 1) if before else keys
    may = torch.cat([cache.there, live], 1) if before else live
    offsets, _ = places_of(keys, known, may)
    new = torch.arange(before, before + width, device=keys.device)
    first = live & (offsets == new)
    if cache.way is None:
        ran = cache.ran_by(stretch.segments, stretch.scratch)
        ran = torch.nn.functional.pad(ran, (0, width)).scatter_reduce(1, offsets, live, "amax")
    else:
        ran = torch.cat([cache.there, first], 1) if before else first
    seen, reached = columns.visible(*columns.lines_of(inner), known, ran)
    if not stretch.block:
        live, first = live & reached, first & reached
    cache.keys = known
    cache.there = torch.cat([cache.there, first], 1) if before else first
    cache.note(stretch.segments, stretch.scratch, offsets, live)
    return offsets, seen, live


def _layers(
    session: EagerSession,
    stretch: Stretch,
    model: Any,
    arguments: tuple[Any, ...],
    hidden: Tensor | None,
    live: Tensor,
    steps: Tensor | None,
    call: _Columns,
    latest: Tensor | None,
) -> Tensor:
    """Hidden states after all layers; on the way the tracks get what they keep."""
    if stretch.keys_only:
        assert hidden is not None
        for start, stop in stretch.pieces:
            for layer in range(start, stop):
                given = hidden.clone()
                model.hidden(*arguments, (layer, layer + 1), given, stretch.skips, latest)
        return hidden
    wanted = {layer for _, layers in stretch.keeps for layer in layers}
    passed: dict[int, Tensor] = {}
    pieces = stretch.pieces
    for start, stop in pieces:
        if start in wanted and hidden is not None:
            passed[start] = hidden.clone()
        hidden = model.hidden(*arguments, (start, stop), hidden, stretch.skips, latest)
        if stop in wanted and (start, stop) != pieces[-1]:
            passed[stop] = hidden.clone()
    assert hidden is not None
    passed[-1] = passed[pieces[-1][1]] = hidden
    if stretch.keeps:
        _keep(session, stretch, call, passed, live, steps)
    return hidden


def _keep(
    session: EagerSession,
    stretch: Stretch,
    call: _Columns,
    passed: dict[int, Tensor],
    live: Tensor,
    steps: Tensor | None,
) -> None:
    """Record hidden states, by the layers after which they are kept."""
    texts, last = call.texts, passed[-1]
    taken = torch.zeros_like(call.tokens) if steps is None else steps
    for name, layers in stretch.keeps:
        track: Track = session.batch.tracks[name]
        states = torch.cat([passed.get(layer, last) for layer in layers], 2)
        if texts and stretch.scratch:
            place = call.positions[:, :texts].clamp(min=0)
            keys = session.batch.keys.gather(1, place)
            track.write_nodes(keys, live[:, :texts], states[:, :texts], taken[:, :texts], True)
        elif texts:
            positions = call.positions[:, :texts]
            track.write_text(positions, live[:, :texts], states[:, :texts], taken[:, :texts])
        if call.inner:
            keys = torch.cat([nodes.keys for nodes in call.inner], 1)
            track.write_nodes(
                keys, live[:, texts:], states[:, texts:], taken[:, texts:], stretch.scratch
            )


def _rows(
    session: EagerSession,
    stretch: Stretch,
    call: _Columns,
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
