"""How kernels are cut up: tiles, splits and warps, as pure functions of shapes; no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

HEAD_DIMS = (64, 128)
MOST_SPLITS = 64
BLOCK_VOCABULARY = 2048
ACCEPTING_WARPS = 8
BLOCK_NORM, NORM_WARPS = 4096, 8
BLOCK_GATED, GATED_WARPS = 1024, 4
_SMALL, _ROOMY = 99 << 10, 227 << 10
"""Shared memory that a program may have (CUDA programming guide, compute capabilities): on the
smallest of our devices, sm_89 and sm_120, and on sm_90 and sm_100. Code for sm_80 also serves
sm_86, which is small."""


@dataclass(frozen=True, order=True)
class AttentionTile:
    """Constants of the attention kernel that its shapes decide.

    Attributes:
        block_m: queries times query heads per key/value head, in one program.
        block_n: slots read at a time.
        num_warps: per program.
        num_stages: blocks in flight.
        resident: programs that a processor has room for, two at most.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    resident: int = field(compare=False)


def roomy(arch: str) -> bool:
    """Whether processors of an architecture, such as sm_90, have room for long blocks."""
    return arch.startswith(("sm_9", "sm_10"))


def attention_tile(lines: int, head_dim: int, element_bytes: int, arch: str) -> AttentionTile:
    """The tile for `lines` queries of one key/value head.

    Tensor cores want 16 lines at least, those of Hopper 64. With more a second program reads the
    cache again, most of it from the L2 cache. Up to 128 lines the reads set the pace, and long
    blocks read fastest; beyond, the products do, and two programs that take turns hide each other's
    softmax (benchmarks/results/gpu.md).

    Args:
        lines: queries of a row times query heads per key/value head.
        head_dim: of `HEAD_DIMS`.
        element_bytes: of a key's element.
        arch: of the device, such as sm_90.
    """
    block_m, block_n, warps, stages = 16 if lines <= 16 else 64, 64, 4, 3
    if element_bytes > 2:
        block_m, block_n, stages = min(block_m, 32), 32 if head_dim <= 64 else 16, 2
    elif roomy(arch):
        block_n = 128 if 16 < lines <= 128 else 64
    elif head_dim > 64:
        warps, stages = 4 if block_m == 16 else 8, 2
    shared = (block_m + 2 * stages * block_n) * head_dim * element_bytes
    room = _ROOMY if roomy(arch) else _SMALL
    return AttentionTile(block_m, block_n, warps, stages, resident=min(2, max(1, room // shared)))


def attention_splits(
    pairs: int, count: int, slots: int, tile: AttentionTile, processors: int
) -> int:
    """Into how many parts the context is cut: a power of two.

    As many as give each processor one program; and while a part has sixteen blocks, as many as fill
    the processors once where the reads set the pace, twice where the products do, so that those
    that are done early find more to do. What a part writes for `tree_attention_combine` is then
    little beside what it reads (benchmarks/results/gpu.md).

    Args:
        pairs: rows times key/value heads.
        count: tiles of queries.
        slots: that a row may have in use at most.
        tile: of the kernel.
        processors: streaming multiprocessors of the device.
    """
    filled = processors * tile.resident * (2 if count > 1 else 1)
    splits = 1
    while 2 * splits <= MOST_SPLITS:
        programs = 2 * splits * pairs * count
        blocks = slots // (2 * splits * tile.block_n)
        few = programs <= processors and blocks >= 1
        if not few and not (programs <= filled and blocks >= 16):
            break
        splits *= 2
    return splits


def power_of_two(count: int) -> int:
    """The smallest power of two that is no less than `count`."""
    return 1 << max(count - 1, 0).bit_length()
