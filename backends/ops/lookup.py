"""`lookup`: what a source found below nodes becomes nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import chains_below, counts_of, lengthened, rehung
from specplan.backends.ops.tensors.values import Nodes, Tree, nodes_of
from specplan.ir.ops import Lookup
from specplan.ir.types.value_types import TreeType

Continuations: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Tokens, parents and which there are, `[B * W, n]` as `specplan.runtime.sources.source.Found` has
them: parents count from the first slot of each of W texts, -1 is the text's end."""


def lookup(
    op: Lookup, tree: Tree, at: Tree | Nodes, *, continuations: Continuations, kind: TreeType
) -> Tree:
    """The tree with what was found below nodes.

    Args:
        op: how many continuations, of how many tokens.
        tree: what grows.
        at: W nodes.
        continuations: below each.
        kind: what the verifier knows of the result.
    """
    at, length, chain = nodes_of(at), op.length, kind.is_chain
    counts = counts_of(op.children, at.width)
    if not merges(op) and (op.nodes is None or sum(counts) * length <= op.nodes):
        shape = (len(tree.tokens), at.width * max(counts), length)
        tokens, _, live = (part.view(shape) for part in continuations)
        return chains_below(tree, at, tokens, live, at.live, counts, chain)
    requests, width, old = len(tree.tokens), at.width, tree.columns
    tokens, parents, live = (part.view(requests, width, -1) for part in continuations)
    slots, device = tokens.shape[2], tokens.device
    taken = _taken(counts, length, slots, op.nodes or 0)
    chosen = torch.tensor([place * slots + slot for place, slot, _ in taken], device=device)
    above = torch.tensor([place for place, _, _ in taken], device=device)
    first = torch.tensor([old + first for _, _, first in taken], device=device)
    new, own, there = (part.flatten(1).index_select(1, chosen) for part in (tokens, parents, live))
    columns = torch.where(own < 0, at.columns.index_select(1, above), own + first)
    there = there & at.live.index_select(1, above)
    zero = torch.zeros_like(new)
    fields = {"tokens": new, "parents": columns, "depths": zero, "live": there, "keys": zero}
    if tree.scores is not None:
        fields["scores"] = zero.to(tree.scores)
    grown = lengthened(
        tree,
        fields,
        levels=tree.levels + length,
        widest=tree.widest_below(at, max(counts)),
        tips=range(0),
        chain=chain,
        in_order=tree.in_order and chain and at.is_last_of(tree),
    )
    if grown.scores is not None and tree.size:
        grown = _scored(grown, old, length)
    return rehung(grown)


def _taken(
    counts: tuple[int, ...], length: int, slots: int, most: int
) -> list[tuple[int, int, int]]:
    """Which of the slots below each node become nodes, in order, until there are `most`.

    Returns:
        The place of the node, the slot, and how many new nodes stand before its first slot.
    """
    taken: list[tuple[int, int, int]] = []
    for place, count in enumerate(counts):
        first = len(taken)
        size = min(count * length, slots, most - first)
        taken += [(place, slot, first) for slot in range(size)]
    return taken


def merges(op: Lookup) -> bool:
    """Whether continuations that begin alike are one node, in trees of the requests' own."""
    most = max(op.children) if isinstance(op.children, tuple) else op.children
    return op.nodes is not None and op.nodes < most * op.length


def _scored(tree: Tree, old: int, length: int) -> Tree:
    """The tree whose new nodes, which are sure, have the path scores of what they hang on."""
    scores = tree.scores
    assert scores is not None
    for _ in range(length):
        scores = torch.cat([scores[:, :old], scores.gather(1, tree.parents)[:, old:]], 1)
    return replace(tree, scores=scores)
