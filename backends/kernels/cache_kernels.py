"""Triton: slots of all caches of a model moved in place, in one launch.

Imports triton: load it only where a kernel is wanted.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def move_slots_kernel(
    addresses, pages, source, destination, live,
    moves, heads, page_words, head_words, slot_words, pages_row,
    WORDS: tl.constexpr, PAGE: tl.constexpr, BLOCK_MOVES: tl.constexpr,
):  # fmt: skip
    """Grid: rows times heads, caches. Each program reads all that it moves before it writes.

    Args:
        addresses: int64, of the caches' first words.
        pages: int32 `[B, pages]`; unused when PAGE is 0.
        source: int64 `[B, moves]`.
        destination: int64 `[B, moves]`.
        live: bool `[B, moves]`.
        moves: at most BLOCK_MOVES.
        heads: per cache.
        page_words: 32-bit words from page to page, or from row to row when PAGE is 0.
        head_words: from head to head.
        slot_words: from slot to slot.
        pages_row: entries of `pages` per row.
        WORDS: of one slot of one head.
        PAGE: slots of a page; 0 when a row's slots lie together.
        BLOCK_MOVES: a power of two.
    """
    pair = tl.program_id(0)
    row, head = (pair // heads).to(tl.int64), pair % heads
    cache = tl.load(addresses + tl.program_id(1)).to(tl.pointer_type(tl.int32))
    move, word = tl.arange(0, BLOCK_MOVES), tl.arange(0, WORDS)
    there = move < moves
    there &= tl.load(live + row * moves + move, mask=there, other=0) != 0
    old = tl.load(source + row * moves + move, mask=there, other=0)
    new = tl.load(destination + row * moves + move, mask=there, other=0)
    if PAGE > 0:
        table = pages + row * pages_row
        old_page = tl.load(table + old // PAGE, mask=there, other=0).to(tl.int64)
        new_page = tl.load(table + new // PAGE, mask=there, other=0).to(tl.int64)
        old = old_page * page_words + old % PAGE * slot_words
        new = new_page * page_words + new % PAGE * slot_words
    else:
        old = row * page_words + old * slot_words
        new = row * page_words + new * slot_words
    cache += head * head_words
    words = tl.load(cache + old[:, None] + word[None, :], mask=there[:, None], other=0)
    tl.debug_barrier()  # no warp writes before all have read
    tl.store(cache + new[:, None] + word[None, :], words, mask=there[:, None])
