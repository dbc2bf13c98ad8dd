"""The op `forward`: tokens, positions, slots and mask of one pass over text and drafted nodes.

A row's columns are its pending text tokens, ending with the root, and then the drafted nodes. Text
tokens live in the slot of their position; the drafted node with offset o in a cache lives in slot
(text length + o), so that an accepted chain is in place already. A pass over some of the layers
writes to the same slots as one over the others, and a track keeps hidden states by these slots.
Where requests run the same nodes of one shape, offsets and the ancestor mask are constants; where a
choice by score made them differ, both are gathered per request.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from specplan.backends.reference.batch import Batch
from specplan.backends.reference.caches import CacheUse, Layers, TrackUse
from specplan.backends.reference.values import Nodes, Rows, Tree, per_request
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.types import ROOT


@dataclass(frozen=True)
class Pass:
    """Inputs of one model call, and its size for observers."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    mask: Tensor
    gather: Tensor | None
    width: int
    context: int


@dataclass(frozen=True)
class Stretch:
    """The part of a model's stack that a forward runs.

    Attributes:
        layers: half-open span.
        features: hidden states that enter it; None for the tokens' embeddings.
        keep: where the hidden states that leave it are recorded, if anywhere.
        logits: whether rows of logits are wanted.
        skips: blocks that are left out.
        scratch: what is written is no part of the text: a later pass of the round, or the next
            round, writes over it.
    """

    layers: Layers
    features: TrackUse | None = None
    keep: TrackUse | None = None
    logits: bool = True
    skips: Skips = NO_SKIPS
    scratch: bool = False


def run_forward(
    batch: Batch, cache: CacheUse, nodes: Nodes, pending: int, stretch: Stretch
) -> tuple[Rows | None, Pass]:
    """Run a cache's model on nodes; text its layers lack comes first when the root is among them.

    Args:
        batch: the requests.
        cache: of the model that runs.
        nodes: of one tree.
        pending: most text tokens, root included, to catch up in this pass.
        stretch: which layers run, from what, and what is kept.

    Returns:
        Logits of the nodes, in their order; None where no logits are wanted.
    """
    layers = stretch.layers
    with_root = nodes.holds_root or layers not in cache.passes(stretch.scratch)
    if with_root:
        batch.catch_up(cache, max(pending, 1))
    call = _prepare(batch, cache, nodes, with_root, stretch)
    features = None if stretch.features is None else stretch.features.read(call.slots)
    hidden = cache.model.hidden(
        call.tokens,
        call.positions,
        call.slots,
        call.mask,
        cache.store,
        layers,
        features,
        stretch.skips,
    )
    if stretch.keep is not None and isinstance(nodes.drafted, tuple):
        stretch.keep.write(cache, nodes.drafted, call.slots, hidden)
    if with_root and not stretch.scratch and cache.caught_up:
        cache.lengths = [
            max(done, now) for done, now in zip(cache.lengths, batch.lengths, strict=True)
        ]
    if not stretch.logits:
        return None, call
    return _rows_of(nodes, with_root, cache.model.logits(hidden, call.gather)), call


def _rows_of(nodes: Nodes, with_root: bool, logits: Tensor) -> Rows:
    """Rows of the nodes, in their order, from those of the drafted ones and perhaps the root."""
    if isinstance(nodes.drafted, Tensor):
        return Rows(logits[:, 1:] if with_root else logits, nodes.indices)
    rows = Rows(logits, (ROOT, *nodes.drafted) if with_root else nodes.drafted)
    return Rows(rows.of(nodes.indices), nodes.indices)


def _prepare(
    batch: Batch, cache: CacheUse, nodes: Nodes, with_root: bool, stretch: Stretch
) -> Pass:
    lengths = batch.length_tensor()[:, None]
    texts = _text_columns(batch, cache) if with_root else 0
    columns_text = lengths + torch.arange(-texts, 0, device=batch.device)
    offsets, depths, tokens = _node_columns(nodes, cache, stretch)
    live = columns_text >= _pending_start(batch, cache)[:, None]
    slots = torch.cat([columns_text.where(live, cache.store.trash), lengths + offsets], 1)
    positions = torch.cat([columns_text, lengths - 1 + depths], 1)
    text = batch.text.gather(1, columns_text.clamp(min=0))
    used = max(batch.lengths) + cache.taken
    mask = _mask(batch, cache, nodes, slots, texts, used)
    drafted = tokens.shape[1]
    gather = None
    if texts > 1:
        rows = torch.arange(texts - 1, texts + drafted, device=batch.device)
        gather = rows.expand(batch.size, -1)
    width = texts + drafted
    return Pass(torch.cat([text, tokens], 1), positions, slots, mask, gather, width, used)


def _text_columns(batch: Batch, cache: CacheUse) -> int:
    """Most text tokens some row has pending; the root is always run, resident or not."""
    return max(1, *(now - done for now, done in zip(batch.lengths, cache.lengths, strict=True)))


def _pending_start(batch: Batch, cache: CacheUse) -> Tensor:
    starts = [min(done, now - 1) for done, now in zip(cache.lengths, batch.lengths, strict=True)]
    return torch.tensor(starts, device=batch.device)


def _node_columns(nodes: Nodes, cache: CacheUse, stretch: Stretch) -> tuple[Tensor, Tensor, Tensor]:
    """Slot offsets and depths, `[W]` or `[B, W]`, and tokens `[B, W]` of drafted nodes.

    Those that no layer has run get slots.
    """
    tree, drafted, device = nodes.tree, nodes.drafted, nodes.tree.tokens.device
    if nodes.own:
        own = per_request(drafted, tree.tokens)
        numbers = tree.numbers_of(own)
        cache.place_own(numbers, tree.highest, stretch.layers)
        depths = per_request(tree.depths, tree.tokens).gather(1, own)
        return cache.slots_of(numbers), depths, tree.tokens.gather(1, own)
    assert isinstance(drafted, tuple) and isinstance(tree.depths, tuple)
    cache.place(drafted, stretch.layers, stretch.scratch)
    offsets = torch.tensor(
        [cache.offsets[node] for node in drafted], dtype=torch.int64, device=device
    )
    depths = torch.tensor([tree.depths[node] for node in drafted], dtype=torch.int64, device=device)
    if drafted == tuple(range(tree.size)):
        return offsets, depths, tree.tokens
    chosen = torch.tensor(drafted, dtype=torch.int64, device=device)
    return offsets, depths, tree.tokens.index_select(1, chosen)


def _mask(
    batch: Batch, cache: CacheUse, nodes: Nodes, slots: Tensor, texts: int, used: int
) -> Tensor:
    """Bool `[B, T, U]`: text up to oneself, and for nodes their ancestors and themselves.

    On a chain whose nodes stand in order a slot is a position, and both are "slots up to mine".
    """
    keys = torch.arange(used, device=batch.device)
    visible = keys <= slots[:, :, None]
    if nodes.own:
        visible[:, texts:] = _own_lines(batch, cache, nodes, keys)
        return visible
    tree, drafted = nodes.tree, nodes.drafted
    assert isinstance(drafted, tuple)
    if _in_order(tree, cache, drafted):
        return visible
    seen = _ancestor_matrix(
        tuple(tuple(cache.offsets[a] for a in tree.ancestors(node)) for node in drafted),
        cache.taken,
    ).to(batch.device)
    for row, length in enumerate(batch.lengths):
        end = length + seen.shape[1]
        visible[row, texts:, :length] = True
        visible[row, texts:, length:end] = seen
        visible[row, texts:, end:] = False
    return visible


def _own_lines(batch: Batch, cache: CacheUse, nodes: Nodes, keys: Tensor) -> Tensor:
    """Bool `[B, W, U]`: what each request's own nodes see, the text and their ancestors."""
    tree, lengths = nodes.tree, batch.length_tensor()[:, None, None]
    lines = tree.lines(per_request(nodes.drafted, tree.tokens))
    slots = lengths + cache.slots_of(tree.numbers_of(lines))
    seen = (keys < lengths).repeat(1, lines.shape[1], 1)
    return seen.scatter_(2, slots, True)


def _in_order(tree: Tree, cache: CacheUse, drafted: tuple[int, ...]) -> bool:
    """True when every node and its ancestors live in the slots of their depths: a chain."""
    assert isinstance(tree.depths, tuple)
    return all(
        cache.offsets.get(node) == tree.depths[node] - 1
        for start in drafted
        for node in tree.ancestors(start)
    )


@cache
def _ancestor_matrix(seen: tuple[tuple[int, ...], ...], width: int) -> Tensor:
    """Bool `[W, width]` from the offsets that each node sees."""
    matrix = torch.zeros(len(seen), width, dtype=torch.bool)
    for node, offsets in enumerate(seen):
        matrix[node, list(offsets)] = True
    return matrix
