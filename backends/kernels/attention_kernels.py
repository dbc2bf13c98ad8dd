"""Triton: attention of a tree's queries to a long cached context and to the tree itself.

The context is cut into splits that run side by side; what each one found is combined by its
log-sum-exp (flash decoding, pytorch.org/blog/flash-decoding; online softmax, arXiv 1805.02867). All
queries that share a key/value head stand in one tile, so that a cache is read once for all of them.
Imports triton: load it only where a kernel is wanted.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _places(slot, there, pages, key_page, key_slot, value_page, value_slot, PAGE: tl.constexpr):
    """Where keys and values of slots lie, from the row and head that the pointers stand at."""
    if PAGE > 0:
        if there is None:
            page = tl.load(pages + slot // PAGE).to(tl.int64)
        else:
            page = tl.load(pages + slot // PAGE, mask=there, other=0).to(tl.int64)
        inner = slot % PAGE
        key_place = page * key_page + inner * key_slot
        value_place = page * value_page + inner * value_slot
    else:
        key_place = slot * key_slot
        value_place = slot * value_slot
    return key_place, value_place


_COUNTS = ["tokens", "window", "slots", "kv_heads", "group", "pages_row", "seen_row"]
"""Numbers that change from pass to pass: one kernel serves all their values."""


@triton.jit(do_not_specialize=_COUNTS)
def tree_attention_split(
    query, keys, values, pages, prefix, seen, out, sums,
    scale, tokens, window, slots, kv_heads, group,
    query_row, query_head, query_token,
    key_page, key_head, key_slot,
    value_page, value_head, value_slot,
    pages_row, seen_row,
    out_row, out_head, out_token,
    HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Grid: tiles of queries, splits, rows times key/value heads.

    Args:
        query: `[B, H, tokens, HEAD_DIM]`, by strides.
        keys: `[B, H_kv, slots, HEAD_DIM]`, or pages of it `[P, H_kv, PAGE, HEAD_DIM]`, by strides.
        values: as `keys`.
        pages: int32 `[B, pages]`; unused when PAGE is 0.
        prefix: int64 `[B]`, slots that all queries see; negative where `seen` begins before them.
        seen: bool `[B or 1, tokens, window]`, which of the slots from there on each one sees.
        out: the result, by strides, where WHOLE; else float32 `[B * H_kv, splits, T * group, D]`.
        sums: the log2-sum-exp2 of each row of `out`, float32; not touched where WHOLE.
        scale: of the scores, times log2(e).
        tokens: queries per row.
        window: slots that `seen` tells of.
        slots: that a row has; none beyond is read.
        kv_heads: key/value heads.
        group: query heads per key/value head.
        query_row: elements from row to row; the next arguments are strides too.
        query_head: of `query`.
        query_token: of `query`.
        key_page: of `keys`, from page to page, or from row to row when PAGE is 0.
        key_head: of `keys`.
        key_slot: of `keys`.
        value_page: of `values`.
        value_head: of `values`.
        value_slot: of `values`.
        pages_row: of `pages`.
        seen_row: of `seen`, 0 when all rows share it.
        out_row: of `out` where WHOLE.
        out_head: of `out` where WHOLE.
        out_token: of `out` where WHOLE.
        HEAD_DIM: a power of two.
        PAGE: slots of a page; 0 when a row's slots lie together.
        WHOLE: there is one split.
        BLOCK_M: queries times query heads of one program.
        BLOCK_N: slots read at a time.
    """
    scale = tl.cast(scale, tl.float32)  # Inductor passes floats in double precision
    tile, split, pair = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(1)
    row = (pair // kv_heads).to(tl.int64)
    head = pair % kv_heads
    first = tl.load(prefix + row).to(tl.int32)
    total_slots = tl.minimum(first + window, slots)
    each = tl.cdiv(tl.cdiv(total_slots, BLOCK_N), splits) * BLOCK_N
    low = split * each
    high = tl.minimum(low + each, total_slots)

    line = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    token = line // group
    inside = token < tokens
    query_of = head * group + line % group
    lane = tl.arange(0, HEAD_DIM)
    place = row * query_row + query_of * query_head + token * query_token
    asked = tl.load(query + place[:, None] + lane[None, :], mask=inside[:, None], other=0.0)
    token = tl.minimum(token, tokens - 1)
    seen += row * seen_row + (token * window)[:, None]
    keys += head * key_head
    values += head * value_head
    if PAGE > 0:
        pages += row * pages_row
    else:
        keys += row * key_page
        values += row * value_page

    total = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    weight = tl.zeros([BLOCK_M], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    # Blocks that lie in the context altogether: nothing to mask, nothing out of bounds.
    whole = tl.maximum(low, tl.minimum(high, tl.maximum(first, 0) // BLOCK_N * BLOCK_N))
    for start in range(low, whole, BLOCK_N):
        slot = start + tl.arange(0, BLOCK_N)
        key_place, value_place = _places(
            slot, None, pages, key_page, key_slot, value_page, value_slot, PAGE
        )
        key = tl.load(keys + key_place[None, :] + lane[:, None])
        value = tl.load(values + value_place[:, None] + lane[None, :])
        scores = tl.dot(asked, key, input_precision="ieee")
        highest = tl.maximum(top, tl.max(scores, 1) * scale)
        share = tl.exp2(scores * scale - highest[:, None])
        shrink = tl.exp2(top - highest)
        weight = weight * shrink + tl.sum(share, 1)
        total = tl.dot(
            share.to(value.dtype), value, total * shrink[:, None], input_precision="ieee"
        )
        top = highest
    TAIL_N: tl.constexpr = 16 if BLOCK_M * BLOCK_N > 4096 else 32
    for start in tl.range(whole, high, TAIL_N, num_stages=1):
        slot = start + tl.arange(0, TAIL_N)
        there = slot < high
        key_place, value_place = _places(
            slot, there, pages, key_page, key_slot, value_page, value_slot, PAGE
        )
        key = tl.load(keys + key_place[None, :] + lane[:, None], mask=there[None, :], other=0.0)
        value = tl.load(
            values + value_place[:, None] + lane[None, :], mask=there[:, None], other=0.0
        )
        scores = tl.dot(asked, key, input_precision="ieee") * scale
        column = slot - first
        drafted = (column >= 0) & there
        visible = tl.load(seen + column[None, :], mask=drafted[None, :], other=0) != 0
        scores = tl.where(visible | (column < 0)[None, :], scores, float("-inf"))
        highest = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(highest == float("-inf"), 0.0, highest)  # a query that has seen nothing
        share = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        weight = weight * shrink + tl.sum(share, 1)
        total = tl.dot(
            share.to(value.dtype), value, total * shrink[:, None], input_precision="ieee"
        )
        top = highest

    mean = total / tl.where(weight == 0.0, 1.0, weight)[:, None]
    if WHOLE:
        place = row * out_row + query_of * out_head + token * out_token
        tl.store(
            out + place[:, None] + lane[None, :], mean.to(out.dtype.element_ty),
            mask=inside[:, None],
        )  # fmt: skip
    else:
        lines = tokens * group
        place = (pair * splits + split).to(tl.int64) * lines + line
        tl.store(out + place[:, None] * HEAD_DIM + lane[None, :], mean, mask=inside[:, None])
        tl.store(sums + place, top + tl.log2(weight), mask=inside)


@triton.jit(do_not_specialize=["tokens", "kv_heads", "group", "splits"])
def tree_attention_combine(
    parts, sums, out, tokens, kv_heads, group, splits,
    out_row, out_head, out_token,
    HEAD_DIM: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """Grid: queries of a key/value head, rows times key/value heads.

    Args:
        parts: float32 `[B * H_kv, splits, T * group, D]`, means over each split.
        sums: float32 `[B * H_kv, splits, T * group]`, their log2-sum-exp2.
        out: `[B, H, tokens, HEAD_DIM]`, by strides, written.
        tokens: queries per row.
        kv_heads: key/value heads.
        group: query heads per key/value head.
        splits: at most BLOCK_SPLITS.
        out_row: elements from row to row.
        out_head: from head to head.
        out_token: from query to query.
        HEAD_DIM: a power of two.
        BLOCK_SPLITS: a power of two.
    """
    line, pair = tl.program_id(0), tl.program_id(1)
    row = (pair // kv_heads).to(tl.int64)
    head, token = pair % kv_heads * group + line % group, line // group
    split, lane = tl.arange(0, BLOCK_SPLITS), tl.arange(0, HEAD_DIM)
    there = split < splits
    place = (pair * splits + split).to(tl.int64) * (tokens * group) + line
    scores = tl.load(sums + place, mask=there, other=float("-inf"))
    highest = tl.max(scores, 0)
    share = tl.exp2(scores - tl.where(highest == float("-inf"), 0.0, highest))
    mean = tl.load(
        parts + place[:, None] * HEAD_DIM + lane[None, :], mask=there[:, None], other=0.0
    )
    weight = tl.sum(share, 0)
    total = tl.sum(mean * share[:, None], 0) / tl.where(weight == 0.0, 1.0, weight)
    place_out = row * out_row + head * out_head + token * out_token
    tl.store(out + place_out + lane, total.to(out.dtype.element_ty))
