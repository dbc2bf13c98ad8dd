"""Trees of what followed a text where it occurred before: continuations merged and weighed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specplan.runtime.sources.source import NO_TOKEN, ROOT, Found, Tokens, Wanted

Weights = NDArray[np.float64]
_SCALE = np.int64(1 << 20)
"""Weights are told apart by so small a part of one."""


def continuation_trees(continuations: Tokens, weights: Weights, wanted: Wanted) -> Found:
    """One tree per text, of the continuations that its occurrences had.

    A node stands for all continuations that begin with its path, and weighs as much as they do
    together. Merged trees hold the heaviest nodes, among equals the shallower ones; continuations
    side by side are grown from the heaviest first tokens, each by its heaviest child.

    Args:
        continuations: int64 `[R, M, L]`, padded with -1 at the end.
        weights: `[R, M]`, 0 for none, else about 1: M + 1 in all at most.
        wanted: how much of them.
    """
    tokens, parents, counts = _ranked(continuations, weights)
    if wanted.nodes is None:
        return _apart(tokens, parents, counts, wanted)
    found = Found.nothing(len(tokens), wanted)
    width = min(found.tokens.shape[1], tokens.shape[1])
    live = np.arange(width) < counts[:, None]
    found.live[:, :width] = live
    found.tokens[:, :width] = np.where(live, tokens[:, :width], 0)
    found.parents[:, :width] = np.where(live, parents[:, :width], ROOT)
    return found


def _ranked(continuations: Tokens, weights: Weights) -> tuple[Tokens, Tokens, Tokens]:
    """All nodes of each tree, heaviest first: tokens and parents `[R, K]`, and how many `[R]`."""
    ordered, weights = _sorted(continuations, weights)
    texts, most, length = ordered.shape
    differs = np.ones(ordered.shape, dtype=np.bool_)
    unlike = ordered[:, 1:] != ordered[:, :-1]
    differs[:, 1:] = np.logical_or.accumulate(unlike, axis=2)
    text, place, depth = np.nonzero(differs & (ordered >= 0))
    mass = _masses(differs, weights)[text, place, depth]
    heavier = np.int64(most + 1) * _SCALE - np.rint(mass * _SCALE).astype(np.int64)
    span = np.int64(most + 2) * _SCALE  # one number for text, weight, depth and place
    by_weight = np.argsort(((text * span + heavier) * length + depth) * most + place)
    text, place, depth = text[by_weight], place[by_weight], depth[by_weight]
    counts = np.bincount(text, minlength=texts)
    rank = np.arange(len(text)) - (np.cumsum(counts) - counts)[text]
    ranks = np.zeros(ordered.shape, dtype=np.int64)
    ranks[text, place, depth] = rank
    begins = np.maximum.accumulate(np.where(differs, np.arange(most)[:, None], 0), axis=1)
    above = np.maximum(depth - 1, 0)
    parent = np.where(depth > 0, ranks[text, begins[text, place, above], above], ROOT)
    tokens = np.zeros((texts, most * length), dtype=np.int64)
    parents = np.full_like(tokens, ROOT)
    tokens[text, rank], parents[text, rank] = ordered[text, place, depth], parent
    return tokens, parents, counts


def _sorted(continuations: Tokens, weights: Weights) -> tuple[Tokens, Weights]:
    """Continuations of each text in the order of their tokens, so that equal beginnings meet."""
    texts, most, length = continuations.shape
    flat = continuations.reshape(-1, length)
    keys = [flat[:, column] for column in range(length - 1, -1, -1)]
    order = np.lexsort((*keys, np.repeat(np.arange(texts), most)))
    return flat[order].reshape(continuations.shape), weights.reshape(-1)[order].reshape(texts, most)


def _masses(differs: NDArray[np.bool_], weights: Weights) -> Weights:
    """`[R, M, L]`: what the continuations from each place to the next other beginning weigh."""
    texts, most, length = differs.shape
    starts = np.where(differs, np.arange(most)[:, None], most)
    following = np.full((texts, most, length), most)
    following[:, :-1] = np.minimum.accumulate(starts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    total = np.zeros((texts, most + 1))
    np.cumsum(weights, axis=1, out=total[:, 1:])
    upto = np.take_along_axis(total[:, :, None].repeat(length, 2), following, 1)
    found: Weights = upto - total[:, :-1, None]
    return found


def _apart(tokens: Tokens, parents: Tokens, counts: Tokens, wanted: Wanted) -> Found:
    """Continuations side by side: a node joins the chain of its parent if it is the tip."""
    found = Found.nothing(len(tokens), wanted)
    for row, count in enumerate(counts.tolist()):
        tips: dict[int, int] = {}  # the last node of each chain -> its slot
        begun = 0
        nodes = zip(tokens[row, :count].tolist(), parents[row, :count].tolist(), strict=True)
        for node, (token, parent) in enumerate(nodes):
            if parent == ROOT:
                if begun == wanted.children:
                    continue
                slot, begun = begun * wanted.length, begun + 1
            elif parent in tips and (tips[parent] + 1) % wanted.length:
                slot = tips.pop(parent) + 1
            else:
                continue
            tips[node] = slot
            found.put(row, slot, token, slot - 1 if slot % wanted.length else ROOT)
    return found


def cut_at_ends(continuations: Tokens) -> Tokens:
    """Continuations `[..., L]` with -1 from the first -1 on: nothing follows the end of a text."""
    ended = np.logical_or.accumulate(continuations < 0, axis=-1)
    return np.where(ended, NO_TOKEN, continuations)
