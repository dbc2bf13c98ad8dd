"""One pass of a model: what enters, slots and mask, the layers, and what tracks keep of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specplan.backends.eager.caches import Cache
from specplan.backends.eager.passes import Stretch
from specplan.backends.eager.placing import Placement
from specplan.backends.eager.tracks import Track
from specplan.backends.ops import forward as columns
from specplan.backends.ops.values import Nodes

if TYPE_CHECKING:
    from specplan.backends.eager.session import EagerSession


@dataclass(frozen=True)
class Columns:
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


def run_pass(
    session: EagerSession,
    stretch: Stretch,
    cache: Cache | None,
    call: Columns,
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
    session: EagerSession, stretch: Stretch, cache: Cache, call: Columns, place: Placement
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
    session: EagerSession, stretch: Stretch, model: Any, call: Columns
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


def _keys_above(session: EagerSession, stretch: Stretch, call: Columns, above: Tensor) -> Tensor:
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
    ran = cache.there
    if cache.way is None:
        ran = cache.ran_by(stretch.segments, stretch.scratch)
    found = columns.forward(inner, live, cache.keys, cache.there, ran, reaching=not stretch.block)
    before = cache.taken
    cache.keys = found.keys
    cache.there = torch.cat([cache.there, found.first], 1) if before else found.first
    cache.note(stretch.segments, stretch.scratch, found.offsets, found.live)
    return found.offsets, found.seen, found.live


def _layers(
    session: EagerSession,
    stretch: Stretch,
    model: Any,
    arguments: tuple[Any, ...],
    hidden: Tensor | None,
    live: Tensor,
    steps: Tensor | None,
    call: Columns,
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
    call: Columns,
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
