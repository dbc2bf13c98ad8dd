"""The ops that end a round, without a look at the numbers: `accept`, `emit` and `commit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.reference.caches import TrackUse
from specplan.backends.reference.judging import Form, judge
from specplan.backends.reference.lengthening import as_far_as_known
from specplan.backends.reference.slots import NodeSlots
from specplan.backends.reference.values import Rows, Tree
from specplan.backends.static.interface import RoundTensors
from specplan.backends.static.values import Path
from specplan.ir.ops import Accept
from specplan.runtime.acceptance import Judged
from specplan.runtime.kv_cache import KVCache
from specplan.runtime.masks import first_true
from specplan.runtime.sampling import SamplingSettings


def accept(
    settings: SamplingSettings, op: Accept, tree: Tree, target: Rows, by: Tensor | None, form: Form
) -> Path:
    """What a rule accepts; arguments as of `specplan.backends.reference.judging.judge`."""
    if tree.own and tree.is_chain:
        return _accept_known(settings, op, tree, target, by, form)
    assert tree.widest or not tree.own, "a graph cannot look how many children there are"
    judged = judge(settings, op, tree, target, by, form)
    nodes = judged.path.clamp(min=0)
    carried = tree.tokens.gather(1, nodes) if tree.size else tree.tokens
    numbers = tree.numbers_of(nodes) if tree.size else nodes
    tokens = _with_bonus(carried, judged)
    count = judged.accepted + 1
    return Path(numbers, tokens, judged.accepted, count, tree.highest, tree.is_chain)


def _accept_known(
    settings: SamplingSettings, op: Accept, tree: Tree, target: Rows, by: Tensor | None, form: Form
) -> Path:
    """The same of a chain of each request's own, which may have rows for some nodes only.

    A node without a row ends the path, with no bonus: what follows it has a row in a later round.
    """
    first, rows, places, has_row = as_far_as_known(tree, target)
    judged = judge(settings, op, first, rows, by, form)
    last = (judged.accepted[:, None] - 1).clamp(min=0)
    ended = (judged.accepted > 0) & ~has_row.gather(1, last)[:, 0]
    numbers, tokens = tree.numbers_of(places), _with_bonus(first.tokens, judged)
    count = judged.accepted + (~ended).long()
    return Path(numbers, tokens, judged.accepted, count, tree.highest, chain=True)


def _with_bonus(tokens: Tensor, judged: Judged) -> Tensor:
    """Tokens `[B, D]` of a path and one more, the bonus after those that were accepted."""
    place = torch.arange(tokens.shape[1] + 1, device=tokens.device)
    carried = torch.cat([tokens, judged.bonus[:, None]], 1)
    return torch.where(place == judged.accepted[:, None], judged.bonus[:, None], carried)


def emit(given: RoundTensors, path: Path) -> tuple[Path, Tensor]:
    """Append a path to the texts, cut after the first stop token and at the limit.

    Returns:
        The cut path, and which requests are done now, bool `[B]`.
    """
    place = torch.arange(path.tokens.shape[1], device=path.tokens.device)
    count = path.count.minimum(given.limits - given.lengths).clamp(min=0)
    stop = (path.tokens[:, :, None] == given.stops[:, None, :]).any(2)
    stop = stop & (place < count[:, None])
    stopped = stop.any(1)
    count = torch.where(stopped, first_true(stop)[:, 0] + 1, count).where(~given.done, 0)
    spare = given.text.shape[1] - 1
    columns = (given.lengths[:, None] + place).where(place < count[:, None], spare)
    given.text.scatter_(1, columns, path.tokens)
    done = given.done | stopped | (given.lengths + count >= given.limits)
    return replace(path, count=count), done


def commit(slots: NodeSlots, store: KVCache, resident: Tensor, path: Path) -> Tensor:
    """Make the resident prefix of each emitted path permanent in a cache.

    Returns:
        Text tokens that the cache holds now, int64 `[B]`.
    """
    if not path.nodes.shape[1]:
        return resident
    found = _slots_by_node(slots, path).gather(1, path.nodes)
    kept = _prefix(found >= 0, path)
    if not (path.chain and _in_place(slots)):
        place = torch.arange(found.shape[1], device=found.device)
        start = resident[:, None]
        store.move(start + found, start + place, kept)
    return resident + kept.sum(1)


def commit_track(track: TrackUse, starts: Tensor, path: Path) -> None:
    """The same for recorded hidden states: those of emitted nodes go to the slots of the text."""
    slots = track.cache
    if slots is None or not path.nodes.shape[1] or (path.chain and _in_place(slots)):
        return
    offsets = {node: slots.offsets[node] for node in track.held}
    found = _table(offsets, path)[path.nodes]
    kept = _prefix(found >= 0, path)
    place = torch.arange(found.shape[1], device=found.device)
    source = (starts[:, None] + found).where(kept, track.trash)
    track.move(source, (starts[:, None] + place).where(kept, track.trash))


def _slots_by_node(slots: NodeSlots, path: Path) -> Tensor:
    """The slot of each node `[B, N]`, counted from the text's end; -1 where a layer lacks it."""
    if slots.own is not None:
        return slots.table(path.highest + 1, path.nodes)
    offsets = {node: slot for node, slot in slots.offsets.items() if slots.resident(node)}
    return _table(offsets, path).expand(len(path.nodes), -1)


def _table(offsets: Mapping[int, int], path: Path) -> Tensor:
    """A constant, int64 `[N]`: -1 for nodes that have no offset."""
    held = [offsets.get(node, -1) for node in range(path.highest + 1)]
    return torch.tensor(held, dtype=torch.int64, device=path.nodes.device)


def _prefix(present: Tensor, path: Path) -> Tensor:
    """Bool `[B, D]`: emitted nodes up to the first that is not present."""
    place = torch.arange(present.shape[1], device=present.device)
    emitted = place < path.count[:, None].minimum(path.accepted[:, None])
    return (~(present & emitted)).cumsum(1) == 0


def _in_place(slots: NodeSlots) -> bool:
    """Whether every node of a chain stands in the slot of its position."""
    return slots.own is None and all(slot == node for node, slot in slots.offsets.items())
