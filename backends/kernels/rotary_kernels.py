"""Triton: queries and keys turned by their positions, keys and values put into a cache.

Rotary embedding is RoFormer's (arXiv 2104.09864). In tensor ops this is five launches per layer,
each of which takes longer to begin than to do its work on the few tokens of a tree.
Imports triton: load it only where a kernel is wanted.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "heads", "kv_heads"])
def rotate_and_store_kernel(
    joined, cos, sin, slots, query, keys, values,
    tokens, heads, kv_heads,
    key_row, key_head, key_slot,
    value_row, value_head, value_slot,
    HALF: tl.constexpr,
):  # fmt: skip
    """Grid: rows times tokens, heads of queries, keys and values.

    Args:
        joined: `[B, tokens, heads + 2 * kv_heads, 2 * HALF]`: queries, keys, values.
        cos: `[B, tokens, 2 * HALF]`.
        sin: `[B, tokens, 2 * HALF]`, its first half negated.
        slots: int64 `[B, tokens]`, where keys and values go.
        query: `[B, tokens, heads, 2 * HALF]`, written.
        keys: `[B, kv_heads, S, 2 * HALF]`, by strides, written.
        values: as `keys`.
        tokens: per row.
        heads: query heads.
        kv_heads: key/value heads.
        key_row: elements from row to row; the next arguments are strides too.
        key_head: of `keys`.
        key_slot: of `keys`.
        value_row: of `values`.
        value_head: of `values`.
        value_slot: of `values`.
        HALF: of a head's entries, a power of two.
    """
    line, head = tl.program_id(0), tl.program_id(1)
    row = (line // tokens).to(tl.int64)
    slot = tl.load(slots + line)
    low = tl.arange(0, HALF)
    high = low + HALF
    source = joined + (line * (heads + 2 * kv_heads) + head) * (2 * HALF)
    first, second = tl.load(source + low), tl.load(source + high)
    if head < heads + kv_heads:
        angle = line * (2 * HALF)
        # Rounded in between, as the tensor ops are.
        turned_first = (first * tl.load(cos + angle + low)).to(tl.float32)
        turned_second = (second * tl.load(cos + angle + high)).to(tl.float32)
        turned_first += second.to(tl.float32) * tl.load(sin + angle + low).to(tl.float32)
        turned_second += first.to(tl.float32) * tl.load(sin + angle + high).to(tl.float32)
        first, second = turned_first.to(first.dtype), turned_second.to(second.dtype)
    if head < heads:
        target = query + (line * heads + head) * (2 * HALF)
    elif head < heads + kv_heads:
        target = keys + row * key_row + (head - heads) * key_head + slot * key_slot
    else:
        own = head - heads - kv_heads
        target = values + row * value_row + own * value_head + slot * value_slot
    tl.store(target + low, first)
    tl.store(target + high, second)
