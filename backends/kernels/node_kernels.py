"""Triton: how every kernel that judges begins and ends. Imports triton."""

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
def tell(path, accepted, bonus, row, node, levels, steps, count, drawn):
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
