"""What each op launches, with which sizes.

Under TRITON_INTERPRET=1, set before triton is imported, all of it runs on CPU tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, UntypedStorage

from specplan.backends.kernels import tiles
from specplan.backends.kernels.launcher import architecture_of, launch, loaded
from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.acceptance import DraftedTree, Judged

LOG2_E = 1.4426950408889634


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
    """See `specplan.backends.kernels.ops.tree_attention`."""
    batch, heads, tokens, head_dim = query.shape
    kv_heads, page = keys.shape[1], keys.shape[2]
    if head_dim not in tiles.HEAD_DIMS:
        raise MissingCapabilityError(
            f"tree attention has no kernel for heads of {head_dim}",
            remedy=f"There are kernels for {tiles.HEAD_DIMS}; others run with plain torch.",
        )
    group = heads // kv_heads
    lines = tokens * group
    slots = page if pages is None else pages.shape[1] * page
    device = _device(query.device)
    tile = tiles.attention_tile(lines, head_dim, query.element_size(), device.arch)
    count = -(-lines // tile.block_m)
    if not splits:
        pairs = batch * kv_heads
        splits = tiles.attention_splits(pairs, count, slots, tile, device.processors)
    query, keys, values = (_rows_together(tensor) for tensor in (query, keys, values))
    seen = seen.contiguous()
    out = torch.empty_like(query)
    parts = sums = out
    whole = splits == 1 and not loaded(query.device)  # kernels built ahead of time write parts
    if not whole:
        shape = (batch * kv_heads, splits, lines)
        parts = query.new_empty(*shape, head_dim, dtype=torch.float32)
        sums = query.new_empty(shape, dtype=torch.float32)
    launch(
        "tree_attention_split", (count, splits, batch * kv_heads),
        query, keys, values, prefix if pages is None else pages, prefix, seen, parts, sums,
        scale * LOG2_E, tokens, seen.shape[2], slots, kv_heads, group,
        *query.stride()[:3], *keys.stride()[:3], *values.stride()[:3],
        0 if pages is None else pages.stride(0), seen.stride(0) if seen.shape[0] > 1 else 0,
        *out.stride()[:3],
        HEAD_DIM=head_dim, PAGE=0 if pages is None else page, WHOLE=whole,
        BLOCK_M=tile.block_m, BLOCK_N=tile.block_n,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    if not whole:
        launch(
            "tree_attention_combine", (lines, batch * kv_heads),
            parts, sums, out, tokens, kv_heads, group, splits, *out.stride()[:3],
            HEAD_DIM=head_dim, BLOCK_SPLITS=tiles.power_of_two(splits), num_warps=4,
        )  # fmt: skip
    return out


def rotate_and_store(
    joined: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """See `specplan.backends.kernels.ops.rotate_and_store`."""
    batch, tokens, count, head_dim = joined.shape
    kv_heads = keys.shape[1]
    heads = count - 2 * kv_heads
    query = joined.new_empty(batch, tokens, heads, head_dim)
    launch(
        "rotate_and_store_kernel", (batch * tokens, count),
        joined, cos, sin, slots, query, keys, values, tokens, heads, kv_heads,
        *keys.stride()[:3], *values.stride()[:3],
        HALF=head_dim // 2, num_warps=1,
    )  # fmt: skip
    return query.transpose(1, 2)


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """See `specplan.backends.kernels.ops.rms_norm`."""
    hidden = hidden.contiguous()
    out, width = torch.empty_like(hidden), hidden.shape[-1]
    launch(
        "rms_norm_kernel", (hidden.numel() // width,),
        hidden, weight, out, epsilon, width,
        BLOCK_WIDTH=tiles.BLOCK_NORM, num_warps=tiles.NORM_WARPS,
    )  # fmt: skip
    return out


def gated_silu(joined: Tensor) -> Tensor:
    """See `specplan.backends.kernels.ops.gated_silu`."""
    joined = joined.contiguous()
    width = joined.shape[-1] // 2
    out = joined.new_empty(*joined.shape[:-1], width)
    launch(
        "gated_silu_kernel", (out.numel() // width, -(-width // tiles.BLOCK_GATED)),
        joined, out, width,
        BLOCK_WIDTH=tiles.BLOCK_GATED, num_warps=tiles.GATED_WARPS,
    )  # fmt: skip
    return out


def accept(rule: str, tree: DraftedTree, target: Tensor, uniforms: Tensor | None) -> Judged:
    """One of the rules `greedy`, `token` and `recursive`, all requests in one launch.

    Args:
        rule: its name.
        tree: at least one node.
        target: logits (`greedy`) or laws `[B, N + 1, V]`.
        uniforms: float64 `[B, N + 1]`; None for `greedy`.
    """
    batch, nodes = tree.tokens.shape
    levels = nodes if rule == "token" else tree.depth
    path = tree.tokens.new_empty(batch, levels)
    accepted, bonus = tree.tokens.new_empty(batch), tree.tokens.new_empty(batch)
    target, tokens = target.contiguous(), tree.tokens.contiguous()
    live = tree.live_mask().contiguous()
    vocabulary = target.shape[2]
    block = min(tiles.BLOCK_VOCABULARY, tiles.power_of_two(vocabulary))
    sizes: dict[str, Any] = dict(
        BLOCK_NODES=tiles.power_of_two(nodes), BLOCK_V=block, num_warps=tiles.ACCEPTING_WARPS
    )
    if rule == "greedy":
        parents, parents_row = _per_row(tree.parents, tokens)
        launch(
            "accept_greedy_kernel", (batch,),
            target, tokens, parents, live, path, accepted, bonus,
            nodes, levels, vocabulary, parents_row, **sizes,
        )  # fmt: skip
        return Judged(path, accepted, bonus)
    assert uniforms is not None
    uniforms = uniforms.contiguous()
    laws, index, index_row, law_rows = target, tokens, 0, 0
    if tree.probs is not None:
        laws, law_rows = tree.probs.contiguous(), tree.probs.shape[1]
        numbers = (-1,) * nodes if tree.probs_index is None else tree.probs_index
        index, index_row = _per_row(numbers, tokens)
    has_laws = tree.probs is not None
    if rule == "token":
        launch(
            "accept_token_kernel", (batch,),
            target, tokens, live, laws, index, uniforms, path, accepted, bonus,
            nodes, vocabulary, law_rows, index_row, HAS_LAWS=has_laws, **sizes,
        )  # fmt: skip
        return Judged(path, accepted, bonus)
    parents, parents_row = _per_row(tree.parents, tokens)
    launch(
        "accept_recursive_kernel", (batch,),
        target, tokens, parents, live, laws, index, uniforms, torch.empty_like(target[:, 0]),
        path, accepted, bonus,
        nodes, levels, vocabulary, parents_row, law_rows, index_row,
        HAS_LAWS=has_laws, DISTINCT=has_laws and tree.distinct, **sizes,
    )  # fmt: skip
    return Judged(path, accepted, bonus)


def move_slots(
    caches: Sequence[Tensor],
    source: Tensor,
    destination: Tensor,
    live: Tensor,
    pages: Tensor | None,
) -> None:
    """See `specplan.backends.kernels.ops.move_slots`."""
    words = [cache.view(torch.int32) for cache in caches]
    first = words[0]
    batch, moves = source.shape
    heads, page = first.shape[1], first.shape[2]
    if first.shape[3] != tiles.power_of_two(first.shape[3]):
        raise MissingCapabilityError(
            f"there is no kernel that moves slots of {4 * first.shape[3]} bytes",
            remedy="There are kernels for powers of two; KVCache.move moves any.",
        )
    launch(
        "move_slots_kernel", (batch * heads, len(words)),
        _addresses(words), source if pages is None else pages, source.contiguous(),
        destination.contiguous(), live.contiguous(),
        moves, heads, *first.stride()[:3], 0 if pages is None else pages.stride(0),
        WORDS=first.shape[3], PAGE=0 if pages is None else page,
        BLOCK_MOVES=tiles.power_of_two(moves), num_warps=4,
    )  # fmt: skip


def _rows_together(tensor: Tensor) -> Tensor:
    """The tensor, or a copy, with neighbours in its last dimension next to each other."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _per_row(values: tuple[int, ...] | Tensor, like: Tensor) -> tuple[Tensor, int]:
    """Int64 `[B, N]`, or `[1, N]` where all rows share it, and how far it is from row to row."""
    if isinstance(values, Tensor):
        shared = values.stride() == (0, 1)
        return (values[:1], 0) if shared else (values.contiguous(), values.shape[1])
    return torch.tensor([values], dtype=torch.int64, device=like.device), 0


class _Device(NamedTuple):
    """What launches depend on of a device: its architecture and its multiprocessors."""

    arch: str
    processors: int


@cache
def _device(device: torch.device) -> _Device:
    if device.type != "cuda" or not torch.cuda.is_available():
        # interpreted, or traced for a GPU that is elsewhere
        return _Device("", 1)
    properties = torch.cuda.get_device_properties(device)
    return _Device(architecture_of(device), int(properties.multi_processor_count))


_tables: WeakKeyDictionary[UntypedStorage, dict[tuple[int, ...], Tensor]] = WeakKeyDictionary()


def _addresses(caches: Sequence[Tensor]) -> Tensor:
    """Where caches lie, on their device; kept as long as they are: captured graphs read it."""
    pointers = tuple(cache.data_ptr() for cache in caches)
    known = _tables.setdefault(caches[0].untyped_storage(), {})
    if pointers not in known:
        known[pointers] = torch.tensor(pointers, dtype=torch.int64, device=caches[0].device)
    return known[pointers]
