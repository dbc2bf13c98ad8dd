"""`lookup`: what a source found below nodes becomes nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from specplan.backends.ops.reshaping import rehung
from specplan.backends.ops.values import Nodes, Tree, child_keys

Continuations: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Tokens, parents and which there are, `[B * W, n]` as `specplan.runtime.sources.source.Found` has
them: parents count from the first slot of each of W texts, -1 is the text's end."""


def lookup(
    tree: Tree,
    at: Nodes,
    found: Continuations,
    *,
    counts: tuple[int, ...],
    length: int,
    merged: bool,
    chain: bool,
) -> Tree:
    """The tree with what was found below nodes.

    Args:
        tree: what grows.
        at: W nodes.
        found: below each.
        counts: continuations of each that are wanted.
        length: tokens of one.
        merged: continuations that begin alike are one node there, in a tree of each request's own.
        chain: no node of the result has two children.
    """
    requests, width = len(tree.tokens), at.width
    tokens, parents, live = (part.view(requests, width, -1) for part in found)
    slots = tokens.shape[2]
    device = tokens.device
    if merged or min(counts) * length == slots:
        listed = [place * slots + slot for place in range(width) for slot in range(slots)]
    else:
        listed = [
            place * slots + slot for place in range(width) for slot in range(counts[place] * length)
        ]
    if not listed:
        return tree
    places = torch.tensor(listed, device=device)
    above, begin = places // slots, torch.tensor(_begins(listed, slots, width), device=device)
    old = tree.columns
    own = parents.flatten(1).index_select(1, places)
    begins = begin.index_select(0, above) + old
    columns = torch.where(own < 0, at.columns.index_select(1, above), own + begins)
    there = live.flatten(1).index_select(1, places) & at.live.index_select(1, above)
    new = tokens.flatten(1).index_select(1, places)
    zero = torch.zeros_like(new)

    def longer(field: Tensor, more: Tensor) -> Tensor:
        return torch.cat([field, more], 1)

    score = None if tree.scores is None else zero.to(tree.scores)
    grown = replace(
        tree,
        tokens=longer(tree.tokens, new),
        parents=longer(tree.parents, columns),
        depths=longer(tree.depths, zero),
        live=longer(tree.live, there),
        keys=longer(tree.keys, zero),
        law_row=longer(tree.law_row, zero - 1),
        own=None if tree.own is None or score is None else longer(tree.own, score),
        scores=None if tree.scores is None or score is None else longer(tree.scores, score),
        levels=tree.levels + length,
        newest=range(old, old + len(listed)),
        chain=chain,
        in_order=tree.in_order and chain and at.is_last_of(tree),
    )
    if grown.in_order and not tree.size:
        return _straight(grown, length)
    if grown.scores is not None and tree.size:
        grown = _scored(grown, old, length)
    return rehung(grown)


def _straight(tree: Tree, length: int) -> Tree:
    """The chain below the root with the keys and depths that follow from its tokens."""
    keys = [tree.keys[:, :1]]
    for step in range(1, length + 1):
        keys.append(child_keys(keys[-1], tree.tokens[:, step : step + 1]))
    depths = torch.arange(length + 1, device=tree.tokens.device).expand_as(tree.tokens)
    return replace(tree, keys=torch.cat(keys, 1), depths=depths)


def _scored(tree: Tree, old: int, length: int) -> Tree:
    """The tree whose new nodes, which are sure, have the path scores of what they hang on."""
    scores = tree.scores
    assert scores is not None
    for _ in range(length):
        scores = torch.cat([scores[:, :old], scores.gather(1, tree.parents)[:, old:]], 1)
    return replace(tree, scores=scores)


def _begins(listed: list[int], slots: int, width: int) -> list[int]:
    """Where the slots of each node begin among all that are listed."""
    counts = [sum(1 for place in listed if place // slots == node) for node in range(width)]
    return [sum(counts[:node]) for node in range(width)]
