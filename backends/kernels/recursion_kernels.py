"""Triton: the acceptance rule `recursive`, a program per request, one launch per batch.

The rule itself is `specplan.runtime.acceptance.recursive`. What is left of the target's law after
a rejection stands in global memory; a program reads only the rows of the nodes that it visits.
Imports triton: load it only where a kernel is wanted.
"""

from __future__ import annotations

import triton
import triton.language as tl

from specplan.backends.kernels.acceptance_parts import (
    drafted_nodes,
    draw_from,
    mass_of,
    parents_of,
    store_outcome,
)


@triton.jit
def _next_child(parent, here, after, nodes, BLOCK_NODES: tl.constexpr):
    """The first child of a node beyond another; `nodes` when there is none."""
    node = tl.arange(0, BLOCK_NODES)
    return tl.min(tl.where((parent == here) & (node > after), node, nodes), 0)


@triton.jit
def _of(values, node, BLOCK_NODES: tl.constexpr):
    """The value of one node."""
    return tl.sum(tl.where(tl.arange(0, BLOCK_NODES) == node, values, 0), 0)


@triton.jit
def _drawn_before(
    entry, parent, token, index, here, child, nodes,
    BLOCK_NODES: tl.constexpr,
):  # fmt: skip
    """Which entries are tokens of earlier siblings from the child's law."""
    gone = entry < 0
    source = _of(index, child, BLOCK_NODES)
    sibling = _next_child(parent, here, -1, nodes, BLOCK_NODES)
    while sibling < child:
        same = _of(index, sibling, BLOCK_NODES) == source
        gone = gone | (entry == tl.where(same, _of(token, sibling, BLOCK_NODES), -1))
        sibling = _next_child(parent, here, sibling, nodes, BLOCK_NODES)
    return gone


@triton.jit
def _left(
    law, residual, whole, proposal, point, stop, divisor,
    even, parent, token, index, here, child, nodes,
    vocabulary, entry, DISTINCT: tl.constexpr, BLOCK_NODES: tl.constexpr,
):  # fmt: skip
    """A block of (R - D)+: R from `law` below `whole`, from `residual` beyond it."""
    inside = entry < vocabulary
    mass = tl.load(law + entry, mask=entry < whole, other=0.0)
    mass += tl.load(residual + entry, mask=inside & (entry >= whole), other=0.0)
    left = entry < stop
    if DISTINCT:
        gone = _drawn_before(entry, parent, token, index, here, child, nodes, BLOCK_NODES)
        left = left & (gone == 0)
    drawn = tl.load(proposal + entry, mask=left, other=0.0).to(mass.dtype) / divisor
    drawn = tl.where(left, drawn + even, 0.0)
    drawn = tl.where(entry == point, 1.0, drawn)
    return tl.maximum(mass - drawn, 0.0)


@triton.jit
def _judge(
    law, residual, whole, proposal, number,
    parent, token, index, here, child, nodes, vocabulary,
    DISTINCT: tl.constexpr, BLOCK_NODES: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Judge a child; a rejection puts norm((R - D)+) in the place of R.

    Returns:
        1 where it is accepted, and `whole`: the vocabulary while R is the law itself, else 0.
    """
    kind = law.dtype.element_ty
    own = _of(token, child, BLOCK_NODES)
    point, stop = own, vocabulary * 0
    divisor, even = tl.full([], 1.0, kind), tl.full([], 0.0, kind)
    odds = tl.full([], 1.0, kind)
    if _of(index, child, BLOCK_NODES) >= 0:
        point, stop = own * 0 - 1, vocabulary
        odds = tl.load(proposal + own).to(kind)
        if DISTINCT:
            total, rest = tl.full([], 0.0, tl.float64), vocabulary * 0
            for start in range(0, vocabulary, BLOCK_V):
                entry = start + tl.arange(0, BLOCK_V)
                gone = _drawn_before(entry, parent, token, index, here, child, nodes, BLOCK_NODES)
                remaining = (entry < vocabulary) & (gone == 0)
                total += tl.sum(
                    tl.load(proposal + entry, mask=remaining, other=0.0).to(tl.float64), 0
                )
                rest += tl.sum(remaining.to(tl.int32), 0)
            if total > 0:
                divisor = total.to(kind)
            else:
                even = (1.0 / tl.maximum(rest, 1).to(tl.float64)).to(kind)
            odds = odds / divisor + even
            if _drawn_before(own, parent, token, index, here, child, nodes, BLOCK_NODES):
                odds = odds * 0.0
    mass = tl.load(residual + own, mask=whole == 0, other=0.0)
    mass += tl.load(law + own, mask=whole > 0, other=0.0)
    won = (number * odds.to(tl.float64) < mass.to(tl.float64)).to(tl.int32)
    if won == 0:
        total = tl.full([], 0.0, tl.float64)
        for start in range(0, vocabulary, BLOCK_V):
            left = _left(
                law, residual, whole, proposal, point, stop, divisor, even, parent, token, index,
                here, child, nodes, vocabulary, start + tl.arange(0, BLOCK_V),
                DISTINCT, BLOCK_NODES,
            )  # fmt: skip
            total += tl.sum(left.to(tl.float64), 0)
        if total > 0:  # else rejection was a rounding error, and R stays
            tl.debug_barrier()
            for start in range(0, vocabulary, BLOCK_V):
                entry = start + tl.arange(0, BLOCK_V)
                left = _left(
                    law, residual, whole, proposal, point, stop, divisor, even, parent, token,
                    index, here, child, nodes, vocabulary, entry, DISTINCT, BLOCK_NODES,
                )  # fmt: skip
                tl.store(residual + entry, left / total.to(kind), mask=entry < vocabulary)
            tl.debug_barrier()
            whole = whole * 0
    return won, whole


@triton.jit(do_not_specialize=("nodes", "levels"))
def accept_recursive_kernel(
    target, tokens, parents, live, laws, law_index, uniforms,
    residual, path, accepted, bonus,
    nodes, levels, vocabulary, parents_row, law_rows, index_row,
    HAS_LAWS: tl.constexpr, DISTINCT: tl.constexpr,
    BLOCK_NODES: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """A tree judged child by child.

    Args:
        target: laws `[B, nodes + 1, vocabulary]`.
        tokens: int64 `[B, nodes]`.
        parents: int64 `[B or 1, nodes]`.
        live: bool `[B, nodes]`.
        laws: `[B, law_rows, vocabulary]`; unused without HAS_LAWS.
        law_index: int64 `[B or 1, nodes]`; unused without HAS_LAWS.
        uniforms: float64 `[B, nodes + 1]`.
        residual: room for `[B, vocabulary]` of the target's type; written.
        path: int64 `[B, levels]`, written.
        accepted: int64 `[B]`, written.
        bonus: int64 `[B]`, written.
        nodes: at most BLOCK_NODES.
        levels: at most `nodes`, no fewer than the deepest path has.
        vocabulary: entries of a law.
        parents_row: entries from row to row, 0 when all share them.
        law_rows: rows of `laws` per request.
        index_row: entries of `law_index` from row to row, 0 when all share them.
        HAS_LAWS: some nodes were drawn from laws; else all are points.
        DISTINCT: siblings of one law were drawn without replacement.
        BLOCK_NODES: a power of two.
        BLOCK_V: entries read at a time.
    """
    row, node, token, alive = drafted_nodes(tokens, live, nodes, BLOCK_NODES)
    alive = alive.to(tl.int32)
    parent = parents_of(parents, row, node, nodes, parents_row)
    index = tl.full([BLOCK_NODES], -1, tl.int32)
    if HAS_LAWS:
        drawn_from = law_index + row * index_row + node
        index = tl.load(drawn_from, mask=node < nodes, other=-1).to(tl.int32)
    targets = target + row * (nodes + 1) * vocabulary
    residual += row * vocabulary
    uniforms += row * (nodes + 1)
    steps = tl.full([BLOCK_NODES], -1, tl.int32)
    count = nodes * 0
    here = count - 1
    whole = vocabulary + 0
    going = (count < levels).to(tl.int32)
    while going > 0:
        law = targets + (here + 1).to(tl.int64) * vocabulary
        child = _next_child(parent, here, -1, nodes, BLOCK_NODES)
        going = going * 0
        while child < nodes:
            following = _next_child(parent, here, child, nodes, BLOCK_NODES)
            if _of(alive, child, BLOCK_NODES) > 0:
                proposal = law
                if HAS_LAWS:
                    place = row * law_rows + tl.maximum(_of(index, child, BLOCK_NODES), 0)
                    proposal = laws + place * vocabulary
                won, whole = _judge(
                    law, residual, whole, proposal, tl.load(uniforms + child),
                    parent, token, index, here, child, nodes, vocabulary,
                    DISTINCT, BLOCK_NODES, BLOCK_V,
                )  # fmt: skip
                if won > 0:
                    steps = tl.where(node == count, child, steps)
                    count += 1
                    here = child
                    whole = vocabulary + 0
                    following = nodes + 0
                    going = (count < levels).to(tl.int32)
            child = following
    law = targets + (here + 1).to(tl.int64) * vocabulary
    number, none = tl.load(uniforms + nodes), count * 0 - 1
    drawn = count * 0
    if whole > 0:
        total = mass_of(law, law, none, 0, vocabulary, BLOCK_V)
        drawn = draw_from(law, law, none, 0, number * total, vocabulary, BLOCK_V)
    else:
        total = mass_of(residual, law, none, 0, vocabulary, BLOCK_V)
        drawn = draw_from(residual, law, none, 0, number * total, vocabulary, BLOCK_V)
    store_outcome(path, accepted, bonus, row, node, levels, steps, count, drawn)
