"""Triton: what stands between the products of a decoder layer, each in one launch.

On the few tokens of a tree these take less time to do than to launch. Numbers are rounded where
the tensor ops round them.
Imports triton: load it only where a kernel is wanted.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(hidden, weight, out, epsilon, width, BLOCK_WIDTH: tl.constexpr):
    """Root mean square norm (arXiv 1910.07467). Grid: rows.

    Args:
        hidden: `[N, width]`.
        weight: `[width]`.
        out: as `hidden`, written.
        epsilon: added to the mean square.
        width: of a row; any.
        BLOCK_WIDTH: entries at a time, a power of two; rows of no more are read once.
    """
    start = tl.program_id(0).to(tl.int64) * width
    place = tl.arange(0, BLOCK_WIDTH)
    if width <= BLOCK_WIDTH:
        there = place < width
        given = tl.load(hidden + start + place, mask=there, other=0.0).to(tl.float32)
        scale = tl.rsqrt((tl.sum(given * given) / width + epsilon).to(tl.float32))
        factor = tl.load(weight + place, mask=there).to(tl.float32)
        tl.store(out + start + place, given * scale * factor, mask=there)
    else:
        squares = tl.zeros([BLOCK_WIDTH], tl.float32)
        for first in range(0, width, BLOCK_WIDTH):
            there = first + place < width
            given = tl.load(hidden + start + first + place, mask=there, other=0.0).to(tl.float32)
            squares += given * given
        scale = tl.rsqrt((tl.sum(squares) / width + epsilon).to(tl.float32))
        for first in range(0, width, BLOCK_WIDTH):
            there = first + place < width
            given = tl.load(hidden + start + first + place, mask=there, other=0.0).to(tl.float32)
            factor = tl.load(weight + first + place, mask=there).to(tl.float32)
            tl.store(out + start + first + place, given * scale * factor, mask=there)


@triton.jit
def gated_silu_kernel(joined, out, width, BLOCK_WIDTH: tl.constexpr):
    """SiLU of a gate times what it lets through (SwiGLU, arXiv 2002.05202). Grid: rows, blocks.

    Args:
        joined: `[N, 2 * width]`: gates, then what they gate.
        out: `[N, width]`, written.
        width: of a row of `out`.
        BLOCK_WIDTH: entries per program, a power of two.
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    there = place < width
    gates = joined + row * 2 * width + place
    gate = tl.load(gates, mask=there, other=0.0)
    passed = tl.load(gates + width, mask=there, other=0.0)
    wide = gate.to(tl.float32)
    opened = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out + row * width + place, opened * passed, mask=there)
