"""Triton: what kernels that judge by laws share. Imports triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _left_of(law, proposal, token, stop, entry, inside):
    """A block of (law - proposal)+, without `token`; the proposal counts below `stop`."""
    mass = tl.load(law + entry, mask=inside, other=0.0)
    drafted = tl.load(proposal + entry, mask=entry < stop, other=0.0).to(mass.dtype)
    return tl.where(entry == token, 0.0, tl.maximum(mass - drafted, 0.0))


@triton.jit
def mass_of(law, proposal, token, stop, vocabulary, BLOCK_V: tl.constexpr):
    """The sum of (law - proposal)+ without `token`, in float64.

    Args:
        law: a row.
        proposal: a row.
        token: left out; -1 for none.
        stop: the vocabulary, or 0 for no proposal.
        vocabulary: entries of a row.
        BLOCK_V: entries read at a time.
    """
    total = tl.full([], 0.0, tl.float64)
    for start in range(0, vocabulary, BLOCK_V):
        entry = start + tl.arange(0, BLOCK_V)
        left = _left_of(law, proposal, token, stop, entry, entry < vocabulary)
        total += tl.sum(left.to(tl.float64), 0)
    return total


@triton.jit
def draw_from(
    law, proposal, token, stop, aim, vocabulary,
    BLOCK_V: tl.constexpr,
):  # fmt: skip
    """The first entry at which the cumulative sum of what `mass_of` sums exceeds `aim`."""
    below = tl.full([], 0.0, tl.float64)
    found, last = vocabulary + 0, vocabulary * 0
    for start in range(0, vocabulary, BLOCK_V):
        entry = start + tl.arange(0, BLOCK_V)
        left = _left_of(law, proposal, token, stop, entry, entry < vocabulary).to(tl.float64)
        reached = (below + tl.cumsum(left, 0) > aim) & (left > 0)
        found = tl.minimum(found, tl.min(tl.where(reached, entry, vocabulary), 0))
        last = tl.maximum(last, tl.max(tl.where(left > 0, entry, 0), 0))
        below += tl.sum(left, 0)
    return tl.minimum(found, last)
