"""The op `forward`: tokens, positions, slots and mask of one pass over text and drafted nodes.

A row's columns are its pending text tokens, ending with the root, and then the drafted nodes. Text
tokens live in the slot of their position; the drafted node with offset o in a cache lives in slot
(text length + o), so that an accepted chain is in place already.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from specplan.backends.reference.batch import Batch, CacheUse
from specplan.backends.reference.values import Nodes, Rows, Tree
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


def run_forward(batch: Batch, cache: CacheUse, nodes: Nodes, pending: int) -> tuple[Rows, Pass]:
    """Run a cache's model on nodes; text the cache lacks comes first when the root is among them.

    Args:
        batch: the requests.
        cache: of the model that runs.
        nodes: of one tree, the same for all rows.
        pending: most text tokens, root included, to catch up in this pass.

    Returns:
        Logits of the nodes, in their order.
    """
    drafted = tuple(node for node in nodes.indices if node != ROOT)
    with_root = ROOT in nodes.indices or not cache.caught_up
    if with_root:
        batch.catch_up(cache, max(pending, 1))
        cache.caught_up = True
    call = _prepare(batch, cache, nodes.tree, drafted, with_root)
    logits = cache.model.forward(
        call.tokens, call.positions, call.slots, call.mask, cache.store, call.gather
    )
    if with_root:
        cache.lengths = [
            max(done, now) for done, now in zip(cache.lengths, batch.lengths, strict=True)
        ]
    indices = (ROOT, *drafted) if with_root else drafted
    rows = Rows(logits, indices)
    if indices != nodes.indices:
        rows = Rows(rows.of(nodes.indices), nodes.indices)
    return rows, call


def _prepare(
    batch: Batch, cache: CacheUse, tree: Tree, drafted: tuple[int, ...], with_root: bool
) -> Pass:
    lengths = batch.length_tensor()[:, None]
    texts = _text_columns(batch, cache) if with_root else 0
    first = len(cache.offsets)
    for place, node in enumerate(drafted):
        cache.offsets[node] = first + place
    columns_text = lengths + torch.arange(-texts, 0, device=batch.device)
    offsets, depths, tokens = _node_columns(tree, drafted, first, batch.device)
    live = columns_text >= _pending_start(batch, cache)[:, None]
    slots = torch.cat([columns_text.where(live, cache.store.trash), lengths + offsets], 1)
    positions = torch.cat([columns_text, lengths - 1 + depths], 1)
    text = batch.text.gather(1, columns_text.clamp(min=0))
    used = max(batch.lengths) + first + len(drafted)
    mask = _mask(batch, cache, tree, drafted, slots, texts, used)
    gather = None
    if texts > 1:
        rows = torch.arange(texts - 1, texts + len(drafted), device=batch.device)
        gather = rows.expand(batch.size, -1)
    width = texts + len(drafted)
    return Pass(torch.cat([text, tokens], 1), positions, slots, mask, gather, width, used)


def _text_columns(batch: Batch, cache: CacheUse) -> int:
    """Most text tokens some row has pending; the root is always run, resident or not."""
    return max(1, *(now - done for now, done in zip(batch.lengths, cache.lengths, strict=True)))


def _pending_start(batch: Batch, cache: CacheUse) -> Tensor:
    starts = [min(done, now - 1) for done, now in zip(cache.lengths, batch.lengths, strict=True)]
    return torch.tensor(starts, device=batch.device)


def _node_columns(
    tree: Tree, drafted: tuple[int, ...], first: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Slot offsets `[W]`, depths `[W]` and tokens `[B, W]` of drafted nodes."""
    offsets = torch.arange(first, first + len(drafted), device=device)
    depths = torch.tensor([tree.depths[node] for node in drafted], dtype=torch.int64, device=device)
    if drafted == tuple(range(tree.size)):
        return offsets, depths, tree.tokens
    chosen = torch.tensor(drafted, dtype=torch.int64, device=device)
    return offsets, depths, tree.tokens.index_select(1, chosen)


def _mask(
    batch: Batch,
    cache: CacheUse,
    tree: Tree,
    drafted: tuple[int, ...],
    slots: Tensor,
    texts: int,
    used: int,
) -> Tensor:
    """Bool `[B, T, U]`: text up to oneself, and for nodes their ancestors and themselves.

    On a chain whose nodes stand in order a slot is a position, and both are "slots up to mine".
    """
    keys = torch.arange(used, device=batch.device)
    visible = keys <= slots[:, :, None]
    if _in_order(tree, cache, drafted):
        return visible
    seen = _ancestor_matrix(
        tuple(tuple(cache.offsets[a] for a in tree.ancestors(node)) for node in drafted),
        len(cache.offsets),
    ).to(batch.device)
    for row, length in enumerate(batch.lengths):
        end = length + seen.shape[1]
        visible[row, texts:, :length] = True
        visible[row, texts:, length:end] = seen
        visible[row, texts:, end:] = False
    return visible


def _in_order(tree: Tree, cache: CacheUse, drafted: tuple[int, ...]) -> bool:
    """True when every node and its ancestors live in the slots of their depths: a chain."""
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
