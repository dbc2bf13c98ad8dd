"""What each kernel computes, in plain torch: the form that runs on the CPU, and the definition."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from specplan.runtime.acceptance import RULES, DraftedTree, Judged
from specplan.runtime.models.rotary_layers import rotate


def tree_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    prefix: Tensor,
    seen: Tensor,
    pages: Tensor | None,
    scale: float,
    splits: int = 0,
) -> Tensor:
    """See `specplan.backends.kernels.ops.tree_attention`; nothing is split here."""
    if pages is not None:
        keys, values = _gathered(keys, pages), _gathered(values, pages)
    slot = torch.arange(keys.shape[2], device=keys.device)
    column = slot - prefix[:, None]
    window = seen.shape[2]
    place = column.clamp(0, window - 1)[:, None].expand(-1, seen.shape[1], -1)
    drafted = seen.expand(len(prefix), -1, -1).gather(2, place)
    visible = (column < 0)[:, None] | (drafted & (column < window)[:, None])
    mixed = functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=visible[:, None], scale=scale, enable_gqa=True
    )
    return torch.where(visible.any(2)[:, None, :, None], mixed, 0.0)


def rotate_and_store(
    joined: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """See `specplan.backends.kernels.ops.rotate_and_store`."""
    kv_heads = keys.shape[1]
    turning, value = joined.tensor_split([joined.shape[2] - kv_heads], dim=2)
    turned = rotate(turning, cos, sin)
    query, key = turned.tensor_split([turned.shape[2] - kv_heads], dim=2)
    row = torch.arange(len(slots), device=slots.device)[:, None]
    keys[row, :, slots] = key
    values[row, :, slots] = value
    return query.transpose(1, 2).clone()


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """See `specplan.backends.kernels.ops.rms_norm`."""
    return functional.rms_norm(hidden, weight.shape, weight, epsilon)


def gated_silu(joined: Tensor) -> Tensor:
    """See `specplan.backends.kernels.ops.gated_silu`."""
    gate, passed = joined.chunk(2, dim=-1)
    return functional.silu(gate) * passed


def accept(rule: str, tree: DraftedTree, target: Tensor, uniforms: Tensor | None) -> Judged:
    """The rule itself, in tensor ops."""
    judged: Judged = RULES[rule].accept_vectorised(tree, target, uniforms)
    return judged


def move_slots(
    caches: Sequence[Tensor],
    source: Tensor,
    destination: Tensor,
    live: Tensor,
    pages: Tensor | None,
) -> None:
    """See `specplan.backends.kernels.ops.move_slots`."""
    # Dead lanes do what the row's first live one does; where all are dead, a slot is kept.
    any_live, first = live.any(1, keepdim=True), live.long().argmax(1, keepdim=True)
    destination = destination.where(live, destination.gather(1, first)).clamp(min=0)
    source = source.where(live, source.gather(1, first)).where(any_live, destination)
    row = torch.arange(len(source), device=source.device)[:, None]
    old, new = (row, source), (row, destination)
    if pages is not None:
        size = caches[0].shape[2]
        old = (pages.gather(1, source // size).long(), source % size)
        new = (pages.gather(1, destination // size).long(), destination % size)
    for cache in caches:
        cache[new[0], :, new[1]] = cache[old[0], :, old[1]]


def _gathered(cache: Tensor, pages: Tensor) -> Tensor:
    """A paged cache `[P, H_kv, page, D]` as `[B, H_kv, S, D]`."""
    rows = cache[pages.long()]  # [B, pages, H_kv, page, D]
    return rows.transpose(1, 2).flatten(2, 3)
