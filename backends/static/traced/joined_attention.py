"""Rotation, writes to the cache and attention of a layer as one op, as runtimes have it.

The op writes to no tensor: caches come in, and come out as they are afterwards. Its torch form is
its definition; ONNX Runtime calls it `GroupQueryAttention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from specplan.runtime.models.attention import RowMask
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.families import RotaryFamily
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.models.rotary_layers import RotaryLayer, rotate

DTYPES = (torch.float32, torch.float16)
"""Number types that the op is for."""
_MULTIPLE = 16
"""Of which the size of a head must be a multiple for it to be turned by the op."""


def joinable(models: Mapping[str, Module]) -> frozenset[str]:
    """Models whose layers are such that one op can do it: rotary, without norms or windows.

    ONNX Runtime's op casts whole caches in every run if they are in another 16-bit type.
    """
    return frozenset(
        name
        for name, model in models.items()
        if model.dtype in DTYPES
        and model.cache_dtype == model.dtype
        and (layers := rotary_layers(model))
        and layers[0].head_dim % _MULTIPLE == 0
        and all(layer.query_norm is None for layer in layers)
        and not any(_stack(model).windows)
    )


def rotary_layers(model: Module) -> Sequence[RotaryLayer]:
    """The layers of a model that are all of the Llama family; none of another one."""
    if isinstance(model, Drafter):
        return () if model.layers is None else model.layers.packed
    family = model.family if isinstance(model, CausalModel) else None
    return family.layers if isinstance(family, RotaryFamily) else ()


def _stack(model: Any) -> Any:
    """What knows the windows and the angles of a model's layers."""
    return model.layers if isinstance(model, Drafter) else model.family


def angles_of(model: Module, slots: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the positions `0 .. slots - 1`, `[slots, D / 2]` each."""
    positions = torch.arange(slots, device=model.device)[None]
    like = torch.empty(1, dtype=model.dtype, device=model.device)
    half = rotary_layers(model)[0].head_dim // 2
    cos, sin = (part[0, :, :half].contiguous() for part in _stack(model).angles(like, positions))
    return cos, sin


def joined_mask(
    store: KVCache,
    first: Tensor,
    positions: Tensor,
    seen: Tensor | None,
    slots: Tensor,
    angles: tuple[Tensor, Tensor],
) -> RowMask:
    """A mask whose attention is the op.

    Args:
        store: a functional cache.
        first: slot of the first column, int64 `[B, 1]`.
        positions: int64 `[B, T]`.
        seen: see `RowMask`.
        slots: those attended to, `0 .. U - 1`.
        angles: see `angles_of`.
    """

    def attend(joined: Tensor, bias: Tensor | None, layer: int, scale: float) -> Tensor:
        keys, values = store.keys[layer], store.values[layer]
        mixed: Tensor
        mixed, store.keys[layer], store.values[layer] = joined_attention(
            joined, keys, values, first[:, 0], positions.clamp(min=0), slots, *angles, bias, scale
        )
        return mixed

    return RowMask(seen, attend, slots)


@torch.library.custom_op("specplan::joined_attention", mutates_args=())
def joined_attention(
    joined: Tensor,
    keys: Tensor,
    values: Tensor,
    first: Tensor,
    positions: Tensor,
    slots: Tensor,
    cos: Tensor,
    sin: Tensor,
    bias: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn queries and keys, put keys and values into neighbouring slots, attend.

    Args:
        joined: queries, keys and values, `[B, T, (H + 2 H_kv) D]`.
        keys: `[B, H_kv, S, D]`.
        values: `[B, H_kv, S, D]`.
        first: slot of each row's first column, int64 `[B]`.
        positions: int64 `[B, T]`.
        slots: those attended to, `0 .. U - 1`; at least up to the last column's.
        cos: of position p in row p, `[S, D / 2]`.
        sin: the same.
        bias: added to the scores, `[B, 1, T, U]`; columns see no slot behind their own in any case.
        scale: factor of the scores.

    Returns:
        `[B, T, H D]`, and keys and values with the new ones.
    """
    batch, columns, _ = joined.shape
    kv_heads, size = keys.shape[1], keys.shape[3]
    parts = joined.view(batch, columns, -1, size)
    heads = parts.shape[2] - 2 * kv_heads
    whole = torch.cat([cos, cos], 1)[positions][:, :, None]
    signed = torch.cat([-sin, sin], 1)[positions][:, :, None]
    turned = rotate(parts[:, :, : heads + kv_heads], whole, signed)
    places = first[:, None] + torch.arange(columns, device=first.device)
    rows = torch.arange(batch, device=first.device)[:, None]
    keys, values = keys.clone(), values.clone()
    keys[rows, :, places] = turned[:, :, heads:]
    values[rows, :, places] = parts[:, :, heads + kv_heads :]
    used = slots.shape[0]
    query = turned[:, :, :heads].transpose(1, 2)
    mine, theirs = (
        each[:, :, :used].repeat_interleave(heads // kv_heads, 1) for each in (keys, values)
    )
    scores = query @ mine.transpose(2, 3) * scale
    scores = scores if bias is None else scores + bias
    scores = scores.masked_fill(slots > places[:, None, :, None], -torch.inf)
    mixed = scores.softmax(3) @ theirs
    return mixed.transpose(1, 2).reshape(batch, columns, heads * size), keys, values


@joined_attention.register_fake
def _(
    joined: Tensor, keys: Tensor, values: Tensor, *_: object, **__: object
) -> tuple[Tensor, Tensor, Tensor]:
    width = joined.shape[2] - 2 * keys.shape[1] * keys.shape[3]
    mixed = joined.new_empty((*joined.shape[:2], width))
    return mixed, torch.empty_like(keys), torch.empty_like(values)
