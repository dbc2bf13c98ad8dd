"""How kernels are cut up: tiles, splits and warps, as pure functions of shapes; no torch."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_DIMS = (64, 128)
MOST_SPLITS = 64
BLOCK_VOCABULARY = 2048
ACCEPTING_WARPS = 8


@dataclass(frozen=True, order=True)
class AttentionTile:
    """Constants of the attention kernel that its shapes decide.

    Attributes:
        block_m: queries times query heads per key/value head, in one program.
        block_n: slots read at a time.
        num_warps: per program.
        num_stages: blocks in flight.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


def attention_tile(lines: int, head_dim: int, element_bytes: int) -> AttentionTile:
    """The tile for `lines` queries of one key/value head.

    Tensor cores want 16 lines at least. With more than 64 a second program reads the cache again,
    most of it from the L2 cache. Blocks are as long as two or three of them fit into the 99 KiB of
    shared memory that the smallest of our devices grants (sm_89 and sm_120, CUDA programming
    guide, table of compute capabilities).
    """
    block_m = min(64, max(16, power_of_two(lines)))
    if element_bytes > 2:
        return AttentionTile(min(block_m, 32), 32 if head_dim <= 64 else 16, 4, 2)
    return AttentionTile(
        block_m, 64, 8 if block_m * head_dim > 4096 else 4, 3 if head_dim <= 64 else 2
    )


def attention_splits(pairs: int, tiles: int, slots: int, block_n: int, processors: int) -> int:
    """Into how many parts the context is cut: a power of two.

    As many as give each processor two programs, while a part has two blocks; up to eight, so that
    processors that are done early find more to do, while a part has sixteen: what a part writes for
    `tree_attention_combine` is then little beside what it reads.

    Args:
        pairs: rows times key/value heads.
        tiles: of queries.
        slots: that a row may have in use at most.
        block_n: slots of a block.
        processors: streaming multiprocessors of the device.
    """
    splits = 1
    while 2 * splits <= MOST_SPLITS:
        programs = 2 * splits * pairs * tiles
        blocks = slots // (2 * splits * block_n)
        few = programs <= 2 * processors and blocks >= 2
        if not few and not (programs <= 8 * processors and blocks >= 16):
            break
        splits *= 2
    return splits


def power_of_two(count: int) -> int:
    """The smallest power of two that is no less than `count`."""
    return 1 << max(count - 1, 0).bit_length()
