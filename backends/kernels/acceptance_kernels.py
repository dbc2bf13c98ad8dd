"""Triton: the acceptance rules `greedy` and `token`, a program per request, one launch per batch.

The rules themselves are those of `specplan.runtime.acceptance`; a program reads only the rows of
the nodes that it visits. Imports triton: load it only where a kernel is wanted.
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
def _first_choice(law, vocabulary, BLOCK_V: tl.constexpr):
    """The token with the highest score; the lowest among equals."""
    best = tl.full([BLOCK_V], float("-inf"), law.dtype.element_ty)
    choice = tl.zeros([BLOCK_V], tl.int32)
    for start in range(0, vocabulary, BLOCK_V):
        entry = start + tl.arange(0, BLOCK_V)
        score = tl.load(law + entry, mask=entry < vocabulary, other=float("-inf"))
        choice = tl.where(score > best, entry, choice)
        best = tl.maximum(score, best)
    return tl.min(tl.where(best == tl.max(best, 0), choice, vocabulary), 0)


@triton.jit(do_not_specialize=("nodes", "levels"))
def accept_greedy_kernel(
    target, tokens, parents, live, path, accepted, bonus,
    nodes, levels, vocabulary, parents_row,
    BLOCK_NODES: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """The path of the target's first choices; see `specplan.runtime.acceptance.greedy`.

    Args:
        target: logits `[B, nodes + 1, vocabulary]`.
        tokens: int64 `[B, nodes]`.
        parents: int64 `[B or 1, nodes]`.
        live: bool `[B, nodes]`.
        path: int64 `[B, levels]`, written.
        accepted: int64 `[B]`, written.
        bonus: int64 `[B]`, written.
        nodes: at most BLOCK_NODES.
        levels: at most `nodes`, no fewer than the deepest path has.
        vocabulary: entries of a row.
        parents_row: entries from row to row, 0 when all share them.
        BLOCK_NODES: a power of two.
        BLOCK_V: entries read at a time.
    """
    row, node, token, alive = drafted_nodes(tokens, live, nodes, BLOCK_NODES)
    parent = parents_of(parents, row, node, nodes, parents_row)
    laws = target + row * (nodes + 1) * vocabulary
    steps = tl.full([BLOCK_NODES], -1, tl.int32)
    count = nodes * 0
    here = count - 1
    wanted = _first_choice(laws, vocabulary, BLOCK_V)
    going = count < levels
    while going:
        hit = (parent == here) & alive & (token == wanted)
        child = tl.min(tl.where(hit, node, nodes), 0)
        going = child < nodes
        if going:
            steps = tl.where(node == count, child, steps)
            count += 1
            here = child
            law = laws + (here + 1).to(tl.int64) * vocabulary
            wanted = _first_choice(law, vocabulary, BLOCK_V)
            going = count < levels
    store_outcome(path, accepted, bonus, row, node, levels, steps, count, wanted)


@triton.jit(do_not_specialize=("nodes",))
def accept_token_kernel(
    target, tokens, live, laws, law_index, uniforms,
    path, accepted, bonus,
    nodes, vocabulary, law_rows, index_row,
    HAS_LAWS: tl.constexpr, BLOCK_NODES: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """A chain judged token by token; see `specplan.runtime.acceptance.token`.

    Args:
        target: laws `[B, nodes + 1, vocabulary]`.
        tokens: int64 `[B, nodes]`.
        live: bool `[B, nodes]`.
        laws: `[B, law_rows, vocabulary]`; unused without HAS_LAWS.
        law_index: int64 `[B or 1, nodes]`; unused without HAS_LAWS.
        uniforms: float64 `[B, nodes + 1]`.
        path: int64 `[B, nodes]`, written.
        accepted: int64 `[B]`, written.
        bonus: int64 `[B]`, written.
        nodes: at most BLOCK_NODES.
        vocabulary: entries of a law.
        law_rows: rows of `laws` per request.
        index_row: entries of `law_index` from row to row, 0 when all share them.
        HAS_LAWS: some nodes were drawn from laws; else all are points.
        BLOCK_NODES: a power of two.
        BLOCK_V: entries read at a time.
    """
    row, node, token, alive = drafted_nodes(tokens, live, nodes, BLOCK_NODES)
    inside = node < nodes
    number = tl.load(uniforms + row * (nodes + 1) + node, mask=inside, other=1.0)
    targets = target + row * (nodes + 1) * vocabulary
    mass = tl.load(targets + node.to(tl.int64) * vocabulary + token, mask=inside, other=0.0)
    odds = tl.full([BLOCK_NODES], 1.0, tl.float64)
    index = tl.full([BLOCK_NODES], -1, tl.int64)
    if HAS_LAWS:
        index = tl.load(law_index + row * index_row + node, mask=inside, other=-1)
        place = (row * law_rows + index) * vocabulary + token
        drawn = tl.load(laws + place, mask=inside & (index >= 0), other=1.0).to(mass.dtype)
        odds = drawn.to(tl.float64)
    won = alive & (number * odds < mass.to(tl.float64))
    count = tl.min(tl.where(won, nodes, node), 0)
    last = tl.minimum(count, nodes - 1)
    at_last = node == last
    drawn_from = tl.sum(tl.where(at_last, index, 0), 0)
    law = targets + count.to(tl.int64) * vocabulary
    proposal = law
    if HAS_LAWS:
        proposal = laws + (row * law_rows + tl.maximum(drawn_from, 0)) * vocabulary
    refused, stop = count * 0 - 1, vocabulary * 0
    if (count < nodes) & (tl.sum((at_last & alive).to(tl.int32), 0) > 0):
        if drawn_from >= 0:
            stop = vocabulary
        else:
            refused = tl.sum(tl.where(at_last, token, 0), 0)
    total = mass_of(law, proposal, refused, stop, vocabulary, BLOCK_V)
    if total == 0.0:  # rejection had probability 0 up to rounding: the law itself stands
        refused, stop = count * 0 - 1, vocabulary * 0
        total = mass_of(law, proposal, refused, stop, vocabulary, BLOCK_V)
    number = tl.load(uniforms + row * (nodes + 1) + nodes)
    drawn_token = draw_from(law, proposal, refused, stop, number * total, vocabulary, BLOCK_V)
    steps = tl.where(node < count, node, -1)
    store_outcome(path, accepted, bonus, row, node, nodes, steps, count, drawn_token)
