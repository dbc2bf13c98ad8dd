"""Hidden states of tracks: what enters a pass, and what is recorded of it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from specplan.backends.eager.passes.columns import Columns, Pass
from specplan.backends.eager.passes.levels import Slots
from specplan.backends.eager.state.placements import Placement
from specplan.backends.eager.state.tracks import Track
from specplan.ir.types.value_types import ROOT


def entered(run: Pass) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """What enters the first layer, which columns there are, and steps of the states that are read.

    The first is None for the tokens' embeddings, the last where no states are read.
    """
    spec, call, model, track = run.spec, run.call, run.model, run.track
    tokens = _last_tokens(run)
    if track is None:
        return model.enter(tokens, call.positions, None, None, None), call.live, None
    above = call.positions - spec.shift
    by_slots = _by_slots(run, track, above)
    if by_slots is not None:
        states, steps, known = by_slots
    elif track.drafted:
        states, steps, known = track.read(above, _keys_above(run, spec.shift, above), spec.scratch)
    else:
        states, steps, known = track.text_at(above)
    if track.deeper:
        states, known = left_by_slots(run, track, spec.shift, spec.shift)
    live = call.live
    if by_slots is not None and not model.optional_features:
        live, known = live & known, torch.ones_like(known)  # no node stands at a text's beginning
    elif not model.optional_features or not spec.own:
        lacking = ~known & (above >= 0)
        if model.optional_features:  # text before the root needs its states
            lacking[:, max(call.texts - 1, 0) :] = False
        if call.slots is not None:
            lacking[:, -call.slots.width :] = False
        live = live & ~lacking
        if spec.cache is not None and call.texts:
            live = live & ~_behind_a_gap(call, live)
    if spec.inside:
        return states, live, steps
    steps = (steps + 1) * known if spec.own else torch.zeros_like(steps)
    return model.enter(tokens, call.positions, states, known, steps), live, steps


def _last_tokens(run: Pass) -> Tensor:
    """The tokens of a pass; behind those above them, of a model that reads several."""
    count, place = run.model.tokens_read, run.call.positions
    if count == 1:
        return run.call.tokens
    above = (_above(run, shift, place - shift, "tokens") for shift in range(1, count))
    return torch.stack([*reversed([*above]), run.call.tokens], 2)


def _by_slots(run: Pass, track: Track, above: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """What a track holds of the nodes that a pass reads, where their slots are known."""
    place, width = run.place, run.call.tokens.shape[1]
    if run.call.texts or track.deeper or not isinstance(place, Placement) or place.states is None:
        return None
    return track.read_slots(place.states[:width], above, run.spec.scratch)


def _behind_a_gap(call: Columns, live: Tensor) -> Tensor:
    """Columns that would attend to text which cannot be read yet, bool `[B, T]`."""
    gaps = (call.live & ~live)[:, : call.texts].cumsum(1) > 0
    nodes = call.tokens.shape[1] - call.texts
    return torch.cat([gaps, gaps[:, -1:].expand(-1, nodes)], 1)


def _keys_above(run: Pass, shift: int, above: Tensor) -> Tensor:
    """Keys of the tokens `shift` above those of a pass, which stand at `above`, int64 `[B, T]`."""
    return _above(run, shift, above, "keys")


def _above(run: Pass, shift: int, above: Tensor, kind: Literal["keys", "tokens"]) -> Tensor:
    """The same, or the tokens themselves."""
    call, batch, keys = run.call, run.runner.batch, []
    texts = batch.keys if kind == "keys" else batch.text
    place = above.clamp(0, texts.shape[1] - 1)
    text_keys = texts.gather(1, place)
    if not call.inner:
        return text_keys
    if call.texts:
        keys.append(text_keys[:, : call.texts])
    start = call.texts
    for nodes in call.inner:
        stop = start + nodes.width
        column = nodes.columns
        for _ in range(shift):
            column = nodes.tree.parents.gather(1, column)
        drafted = nodes.take(nodes.tree.depths) >= shift
        mine = getattr(nodes.tree, kind).gather(1, column)
        keys.append(torch.where(drafted, mine, text_keys[:, start:stop]))
        start = stop
    return torch.cat(keys, 1)


def left_by_slots(run: Pass, track: Track, level: int, above: int) -> tuple[Tensor, Tensor]:
    """What slots left `level` tokens below where the features are, `[B, T, F]`, and where.

    The features are `above` tokens over those of the pass; the slots are those of the nearest node
    above which has run.
    """
    left: Tensor | None = None
    there = settled = torch.zeros_like(run.call.live)
    for back in range(len(track.deeper) + 1 - level):
        shift = above + back
        place = run.call.positions - shift
        keys = _keys_above(run, shift, place)
        ran = track.read(place, keys, run.spec.scratch)[2]
        slots = track if level + back == 0 else track.deeper[level + back - 1]
        states, _, known = slots.read(place, keys, run.spec.scratch)
        new = ran & ~settled
        left = states if left is None else torch.where(new[:, :, None], states, left)
        there, settled = there | (new & known), settled | ran
    assert left is not None, "the verifier sees to it that tracks keep as many levels"
    return left, there


def enter_slots(run: Pass, slots: Slots, hidden: Tensor) -> None:
    """Put what enters for slots in their columns: what an earlier pass left, or the model's own."""
    nodes = hidden.gather(1, slots.wide(hidden))
    track = run.track
    for level in range(1, slots.levels + 1):
        entering = run.model.enter_slots(nodes, level)
        if track is not None and level <= len(track.deeper):
            left, there = left_by_slots(run, track, level, 0)
            left, there = left.gather(1, slots.wide(left)), there.gather(1, slots.below)
            entering = torch.where(there[:, :, None], left, entering)
        slots.of(hidden, level).copy_(entering)


def keep(run: Pass, passed: dict[int, Tensor], live: Tensor, steps: Tensor | None) -> None:
    """Record hidden states, by the layers after which they are kept."""
    spec, call, batch = run.spec, run.call, run.runner.batch
    steps = torch.zeros_like(call.tokens) if steps is None else steps
    texts, last, slots = call.texts, passed[-1], call.slots
    stop = call.tokens.shape[1] - (0 if slots is None else slots.width)
    fixed = run.place.offsets[: stop - texts] if isinstance(run.place, Placement) else None
    for name, layers in spec.keeps:
        track = batch.tracks[name]
        states = torch.cat([passed.get(layer, last) for layer in layers], 2)
        if texts and spec.scratch:
            place = call.positions[:, :texts].clamp(min=0)
            keys = batch.keys.gather(1, place)
            track.write_nodes(keys, live[:, :texts], states[:, :texts], steps[:, :texts], True)
        elif texts and track.at_root:
            root, last_of = batch.root(None).keys, slice(texts - 1, texts)
            track.write_nodes(
                root, live[:, last_of], states[:, last_of], steps[:, last_of], False, (ROOT,)
            )
        elif texts:
            positions = call.positions[:, :texts]
            track.write_text(positions, live[:, :texts], states[:, :texts], steps[:, :texts])
        keys = torch.cat([call.tokens[:, :0], *(nodes.keys for nodes in call.inner)], 1)
        if texts < stop:
            track.write_nodes(
                keys[:, : stop - texts], live[:, texts:stop], states[:, texts:stop],
                steps[:, texts:stop], spec.scratch, fixed,
            )  # fmt: skip
        for level in range(1, 1 + min(len(track.deeper), 0 if slots is None else slots.levels)):
            assert slots is not None
            root = batch.root(None).keys.expand(-1, texts)
            nodes = torch.cat([root, keys[:, : stop - texts]], 1).gather(1, slots.below)
            track.deeper[level - 1].write_nodes(
                nodes, slots.of(live, level), slots.of(states, level), slots.of(steps, level),
                spec.scratch,
            )  # fmt: skip
