"""One pass of a model: what enters, slots and mask, the layers, and what tracks keep of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from specplan.backends.eager.passes.columns import Columns, Pass, Passed
from specplan.backends.eager.passes.hidden_states import enter_slots, entered, keep, left_by_slots
from specplan.backends.eager.state.placements import Fresh, Placement
from specplan.backends.eager.state.slots import NodeSlots
from specplan.backends.ops import forward as columns
from specplan.backends.ops.tensors.values import part
from specplan.ir.blocks import read_heads
from specplan.runtime.masks import marked
from specplan.runtime.models.cache_parts.by_head import StreamingSlots, hidden_by_head
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.packed import PackedColumns, hidden_of_pack

Through: TypeAlias = Callable[[tuple[int, int], Tensor | None], Tensor]
"""Hidden states after a span of layers; from tokens where none are given."""


def run_pass(run: Pass, cache: NodeSlots | None) -> Passed:
    """Run the columns through the layers."""
    given = _known(run, cache)
    if given is None and isinstance(run.place, Placement):
        run = replace(run, place=None)
    spec, call, batch = run.spec, run.call, run.runner.batch
    hidden, live, steps = entered(run)
    if not spec.pieces:
        return _head_only(run, hidden, live, steps)
    texts, used = call.texts, call.used
    if cache is None:  # a pass that leaves nothing behind
        store = run.model.new_cache(batch.size, call.tokens.shape[1])
        cache, used = NodeSlots(store), texts
        ends = torch.full_like(batch.ends, texts)
        text_slots = torch.arange(texts, device=ends.device).expand(len(ends), -1)
    else:
        shift = cache.shift
        ends, text_slots = batch.ends, part(call.positions, 0, texts)
        if isinstance(shift, Tensor):
            ends, text_slots = ends - shift, text_slots - shift
    before = cache.taken
    slots, offsets, seen, live = _slots(run, cache, given, ends, text_slots, live)
    cache.enter(spec, slots, fresh=spec.new_nodes and not texts)
    sure = live is call.live and run.runner.taking_part() is None
    if run.fills:
        assert isinstance(run.model, Drafter) and hidden is not None
        run.model.fill(hidden, call.positions, slots, cache.store)
        return Passed(hidden, live, steps)
    used += cache.taken
    row = _in_a_row(run, cache, before)
    mask = cache.mask(slots, texts, ends, offsets, seen, used, call.positions if row else None)
    if spec.block:
        assert isinstance(mask, Tensor), "kernels know no tokens that all see each other"
        columns_seen = slots.clamp(max=mask.shape[2] - 1)
        mask = mask | marked(columns_seen, live, mask.shape[2])[:, None, :]
    latest = None
    if cache.store.queries is not None and texts and not spec.scratch:
        latest = _latest(live[:, :texts])
    arguments = (call.tokens, call.positions, slots, mask, cache.store)
    through: Through = partial(
        run.model.hidden, *arguments, skips=spec.skips, latest=latest, ahead=call.ahead
    )
    if call.packing is not None and latest is None and isinstance(mask, Tensor):
        assert isinstance(run.model, CausalModel)
        packed = PackedColumns(call.tokens, call.positions, slots, mask, call.packing)
        through = partial(hidden_of_pack, run.model, packed, cache.store, skips=spec.skips)
    context = used
    if spec.policy is not None:
        assert isinstance(mask, Tensor), "kernels know no heads that see less"
        through, context = _by_head(run, cache, slots, mask)
    hidden = _layers(run, through, hidden, live, steps)
    if call.slots is None:
        return Passed(hidden, live, steps, context=context, sure=sure)
    by_level = tuple(
        (call.slots.aligned(hidden, level), call.slots.aligned(live, level))
        for level in range(1, call.slots.levels + 1)
    )
    stop = hidden.shape[1] - call.slots.width
    steps = None if steps is None else steps[:, :stop]
    return Passed(hidden[:, :stop], live[:, :stop], steps, by_level, used, sure)


def _by_head(run: Pass, cache: NodeSlots, slots: Tensor, mask: Tensor) -> tuple[Through, int]:
    """The layers where streaming heads see less, and the slots that heads read in the mean."""
    model, policy, call = run.model, run.spec.policy, run.call
    assert isinstance(model, CausalModel) and policy is not None
    used, lengths = mask.shape[2], run.runner.batch.ends[:, 0].tolist()
    budget, retrieval = policy.integer("budget", 0), read_heads(policy.words("retrieval"))
    sink, device = policy.integer("sink", 16), mask.device
    streaming = StreamingSlots.of_text(lengths, sink, budget, used, device)
    arguments = (call.tokens, call.positions, slots, mask, cache.store)
    through = partial(
        hidden_by_head, model, retrieval, streaming, *arguments, skips=run.spec.skips,
        ahead=call.ahead,
    )  # fmt: skip
    assert streaming.columns is not None
    share = len(retrieval) / (model.num_layers * model.family.kv_heads)
    return through, round(share * used + (1.0 - share) * streaming.columns.shape[1])


def _head_only(run: Pass, hidden: Tensor | None, live: Tensor, steps: Tensor | None) -> Passed:
    """States as they entered, or those of slots that an earlier pass has left."""
    spec, track = run.spec, run.track
    if track is None or not track.deeper:
        assert hidden is not None, "what runs no layer reads hidden states"
        if spec.keeps:
            keep(run, {-1: hidden}, live, steps)
        return Passed(hidden, live, steps)
    first, *more = (
        left_by_slots(run, track, spec.shift + level, spec.shift)
        for level in range(spec.most_levels)
    )
    ahead = tuple((states, there & live) for states, there in more)
    return Passed(first[0], live & first[1], steps, ahead)


def _slots(
    run: Pass,
    cache: NodeSlots,
    given: tuple[Tensor, Tensor | None] | None,
    ends: Tensor,
    text_slots: Tensor,
    live: Tensor,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Slots of all columns, those of nodes from the text's end, what they see, and what can run."""
    call, offsets, seen, trash = run.call, None, None, cache.store.trash
    texts = call.texts
    slots = text_slots if not texts else text_slots.where(part(live, 0, texts), trash)
    if call.tokens.shape[1] > texts:
        if given is None:
            offsets, seen, there = _placed(run, cache, part(live, texts))
            if there is not None:
                live = torch.cat([live[:, :texts], there], 1) if texts else there
            drafted = (ends + offsets).where(part(live, texts), trash)
        else:  # a dead node has a slot of its own, so that slots stay in a row
            offsets, seen = given
            drafted = ends + offsets
            assert isinstance(run.place, Placement)
            _run(cache, call, run.place, part(live, texts))
        slots = torch.cat([slots, drafted], 1) if texts else drafted
    return slots, offsets, seen, live


def _in_a_row(run: Pass, cache: NodeSlots, before: int) -> bool:
    """Whether all columns stand in neighbouring slots and see none behind their own.

    A column of text that is there already counts: it runs again, and writes what it wrote before.
    So does one whose state is not there yet: what it writes is not taken for the text's.
    """
    spec, call, place = run.spec, run.call, run.place
    width = call.tokens.shape[1] - call.texts
    own = spec.cache is not None and not spec.block and not (spec.scratch and call.texts)
    unmoved = isinstance(cache.shift, int) and cache.shift == 0
    plain = cache.store.queries is None and unmoved and call.slots is None
    plain = plain and cache.store.images is None
    everyone = run.runner.taking_part() is None and call.texts <= max(spec.pending, 1)
    if not (own and plain and everyone) or call.rooted:
        return False
    if not width:
        return True
    if not isinstance(place, Placement) or cache.placed is None or (call.texts and before):
        return False
    offsets, seen = place.offsets[:width], place.seen[:width]
    following = offsets == tuple(range(before, before + width))
    return following and all(max(mine) <= slot for slot, mine in zip(offsets, seen, strict=True))


def _latest(live: Tensor) -> Tensor:
    """The last column of text of each request, int64 `[B]`; -1 where it has none."""
    places = torch.arange(live.shape[1], device=live.device)
    return places.where(live, -1).amax(1)


def _known(run: Pass, cache: NodeSlots | None) -> tuple[Tensor, Tensor | None] | None:
    """Slots of nodes and what they see of nodes, where both are constants in this pass."""
    session, call, place = run.runner, run.call, run.place
    width = call.tokens.shape[1] - call.texts
    if cache is None or not isinstance(place, Placement):
        return None
    if cache.placed is None or cache.taken != place.before or width > len(place.offsets):
        return None
    if session.taking_part() is not None:
        return None
    constant = session.constants.get((id(place), width))
    if constant is None:
        offsets = torch.tensor(place.offsets[:width], device=call.tokens.device)
        seen = None
        if not place.causal:
            taken = range(max(place.before, place.before + width - place.old))
            rows = [[slot in mine for slot in taken] for mine in place.seen[:width]]
            seen = torch.tensor(rows, device=offsets.device)[None]
        constant = session.constants[id(place), width] = (offsets, seen)
    return constant


def _run(cache: NodeSlots, call: Columns, place: Placement, live: Tensor) -> None:
    """Note that a pass ran nodes whose slots were known."""
    width, old = live.shape[1], place.old
    if width > old:
        inner = call.inner[0]
        cache.add(part(inner.keys, old), part(live, old), twins=not inner.tree.layered)
    cache.placed, cache.in_order = place.ran, cache.in_order and place.causal


def _placed(run: Pass, cache: NodeSlots, live: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Slots of nodes counted from the text's end, what they see of nodes, and which can run.

    None where all can that were to.
    """
    spec, inner, rooted, place = run.spec, run.call.inner, run.call.rooted, run.place
    fresh = isinstance(place, Fresh) and len(inner) == 1 and inner[0].tree.layered
    reaching = not (spec.block or (fresh and isinstance(place, Fresh) and place.reached))
    cache.compare()
    ran = cache.there
    if cache.way is None:
        ran = cache.ran_by(spec.segments, spec.scratch)
    slots = columns.forward(
        inner, live, cache.keys, cache.there, ran, reaching=reaching, fresh=fresh, rooted=rooted
    )
    before = cache.taken
    cache.keys = slots.keys
    cache.there = torch.cat([cache.there, slots.first], 1) if before else slots.first
    drafted = slots.live & (slots.offsets >= 0) if rooted else slots.live
    cache.note(spec.segments, spec.scratch, slots.offsets, drafted)
    return slots.offsets, slots.seen, slots.live if reaching else None


def _layers(
    run: Pass,
    through: Through,
    hidden: Tensor | None,
    live: Tensor,
    steps: Tensor | None,
) -> Tensor:
    """Hidden states after all layers; on the way the tracks get what they keep."""
    spec, call = run.spec, run.call
    if spec.keys_only:
        assert hidden is not None
        for start, stop in spec.pieces:
            for layer in range(start, stop):
                through((layer, layer + 1), hidden.clone())
        return hidden
    wanted = {layer for _, layers in spec.keeps for layer in layers}
    passed: dict[int, Tensor] = {}
    pieces = spec.pieces
    enters = max(run.model.slots_enter, pieces[0][0]) if call.slots is not None else -1
    for start, stop in pieces:
        if start in wanted and hidden is not None:
            passed[start] = hidden.clone()
        if call.slots is not None and start <= enters < stop:
            hidden = through((start, enters), hidden)
            enter_slots(run, call.slots, hidden)
            start = enters
        hidden = through((start, stop), hidden)
        if stop in wanted and (start, stop) != pieces[-1]:
            passed[stop] = hidden.clone()
    assert hidden is not None
    passed[-1] = passed[pieces[-1][1]] = hidden
    if spec.keeps:
        keep(run, passed, live, steps)
    return hidden
