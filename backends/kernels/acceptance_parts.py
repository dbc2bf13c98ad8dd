"""Triton: what the kernels of all acceptance rules share: nodes in, probabilities, results out.

Imports triton: load it only where a kernel is wanted.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def drafted_nodes(tokens, live, nodes, BLOCK_NODES: tl.constexpr):
    """This program's row, numbers of nodes, their tokens, and which of them are live.

    Args:
        tokens: int64 `[B, nodes]`.
        live: bool `[B, nodes]`.
        nodes: at most BLOCK_NODES.
        BLOCK_NODES: a power of two.
    """
    row = tl.program_id(0).to(tl.int64)
    node = tl.arange(0, BLOCK_NODES)
    place, inside = row * nodes + node, node < nodes
    token = tl.load(tokens + place, mask=inside, other=-1).to(tl.int32)
    alive = tl.load(live + place, mask=inside, other=0) != 0
    return row, node, token, alive


@triton.jit
def parents_of(parents, row, node, nodes, parents_row):
    """The parents of nodes; -2 beyond the last.

    Args:
        parents: int64 `[B or 1, nodes]`.
        row: of the batch.
        node: numbers of nodes.
        nodes: how many there are.
        parents_row: entries from row to row, 0 when all share them.
    """
    place = row * parents_row + node
    return tl.load(parents + place, mask=node < nodes, other=-2).to(tl.int32)


@triton.jit
def store_outcome(path, accepted, bonus, row, node, levels, steps, count, drawn):
    """Write what became of a request.

    Args:
        path: int64 `[B, levels]`.
        accepted: int64 `[B]`.
        bonus: int64 `[B]`.
        row: of the batch.
        node: places of a path, and more.
        levels: places of a path.
        steps: its nodes, -1 beyond the last accepted one.
        count: of accepted nodes.
        drawn: the token after them.
    """
    tl.store(path + row * levels + node, steps.to(tl.int64), mask=node < levels)
    tl.store(accepted + row, count.to(tl.int64))
    tl.store(bonus + row, drawn.to(tl.int64))


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
    first, last = vocabulary + 0, vocabulary * 0
    for start in range(0, vocabulary, BLOCK_V):
        entry = start + tl.arange(0, BLOCK_V)
        left = _left_of(law, proposal, token, stop, entry, entry < vocabulary).to(tl.float64)
        reached = (below + tl.cumsum(left, 0) > aim) & (left > 0)
        first = tl.minimum(first, tl.min(tl.where(reached, entry, vocabulary), 0))
        last = tl.maximum(last, tl.max(tl.where(left > 0, entry, 0), 0))
        below += tl.sum(left, 0)
    return tl.minimum(first, last)
