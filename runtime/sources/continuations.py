"""Trees of what followed a text where it occurred before: continuations merged and weighed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specplan.runtime.sources.source import NO_TOKEN, ROOT, Found, Tokens, Wanted

Weights = NDArray[np.float64]
_NOWHERE = -2
_SCALE = np.int64(1 << 20)
"""Weights are told apart by so small a part of one."""


def continuation_trees(
    continuations: Tokens, wanted: Wanted, weights: Weights | None = None
) -> Found:
    """One tree per text, of the continuations that its occurrences had.

    A node stands for all continuations that begin with its path, and weighs as much as they do
    together. Merged trees hold the heaviest nodes, among equals the shallower ones; continuations
    side by side are grown from the heaviest first tokens, each by its heaviest child.

    Args:
        continuations: int64 `[R, M, L]`, padded with -1 at the end.
        wanted: how much of them.
        weights: `[R, M]`, about 1 each: M + 1 in all at most; None for 1.
    """
    most = wanted.size if wanted.nodes is not None and weights is None else None
    tokens, parents, counts = _ranked(continuations, weights, most)
    if wanted.nodes is None:
        return _apart(tokens, parents, counts, wanted)
    found = Found.nothing(len(tokens), wanted)
    width = min(found.tokens.shape[1], tokens.shape[1])
    found.tokens[:, :width] = tokens[:, :width]
    found.parents[:, :width] = parents[:, :width]
    found.live[:, :width] = np.arange(width) < counts[:, None]
    return found


def _ranked(
    continuations: Tokens, weights: Weights | None, enough: int | None
) -> tuple[Tokens, Tokens, Tokens]:
    """The nodes of each tree, heaviest first: tokens and parents `[R, K]`, and how many `[R]`.

    Args:
        continuations: `[R, M, L]`.
        weights: `[R, M]`, None for 1.
        enough: so many nodes of each tree suffice: of what stands for one continuation, the
            shallower come first, and what is deeper than enough of them is left out.
    """
    ordered, weights = _sorted(continuations, weights)
    texts, most, length = ordered.shape
    differs = np.ones(ordered.shape, dtype=np.bool_)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=differs[:, 1:])
    for depth in range(1, length):
        differs[:, :, depth] |= differs[:, :, depth - 1]
    live = differs & (ordered >= 0)
    masses = _masses(differs, weights)
    if enough is not None:
        levels = live.sum(1)
        shallower = np.cumsum(levels, axis=1) - levels
        live &= (masses > _SCALE) | (shallower < enough)[:, None]
    (node,) = np.nonzero(live.ravel())
    mass = masses.ravel()[node]
    above, depths = node // length, node % length
    text, place = above // most, above % most
    heavier = np.int64(most + 1) * _SCALE - mass
    span = np.int64(most + 2) * _SCALE  # one number for text, weight, depth and place
    by_weight = np.argsort(((text * span + heavier) * length + depths) * most + place)
    node, text, depths = node[by_weight], text[by_weight], depths[by_weight]
    counts = np.bincount(text, minlength=texts)
    rank = np.arange(len(node)) - (np.cumsum(counts) - counts)[text]
    ranks = np.zeros(ordered.size, dtype=np.int64)
    ranks[node] = rank
    begins = np.where(differs, np.arange(most)[:, None], 0)
    np.maximum.accumulate(begins, axis=1, out=begins)
    parent = (text * most + begins.ravel()[node - (depths > 0)]) * length + depths - 1
    tokens = np.zeros((texts, most * length), dtype=np.int64)
    parents = np.full_like(tokens, ROOT)
    slots = text * (most * length) + rank
    tokens.ravel()[slots] = ordered.ravel()[node]
    parents.ravel()[slots] = np.where(depths > 0, ranks[parent], ROOT)
    return tokens, parents, counts


def _sorted(continuations: Tokens, weights: Weights | None) -> tuple[Tokens, Weights | None]:
    """Continuations of each text in the order of their tokens, so that equal beginnings meet."""
    texts, most, length = continuations.shape
    flat = continuations.reshape(-1, length)
    keys = [flat[:, column] + 1 for column in range(length)]
    pairs = [one << 32 | two for one, two in zip(keys[::2], keys[1::2], strict=False)]
    pairs += keys[-1:] if length % 2 else []
    order = np.lexsort((*reversed(pairs), np.repeat(np.arange(texts), most)))
    if weights is not None:
        weights = weights.reshape(-1)[order].reshape(texts, most)
    return flat[order].reshape(continuations.shape), weights


def _masses(differs: NDArray[np.bool_], weights: Weights | None) -> Tokens:
    """`[R, M, L]`: what the continuations from each place to the next other beginning weigh.

    In parts of `_SCALE`.
    """
    texts, most, length = differs.shape
    following = np.full((texts, most, length), most)
    starts = np.where(differs[:, 1:], np.arange(1, most)[:, None], most)
    following[:, :-1] = np.minimum.accumulate(starts[:, ::-1], axis=1)[:, ::-1]
    if weights is None:
        return (following - np.arange(most)[:, None]) * _SCALE
    total = np.zeros((texts, most + 1))
    np.cumsum(weights, axis=1, out=total[:, 1:])
    upto = np.take_along_axis(total, following.reshape(texts, -1), 1).reshape(differs.shape)
    return np.rint((upto - total[:, :-1, None]) * _SCALE).astype(np.int64)


def _apart(tokens: Tokens, parents: Tokens, counts: Tokens, wanted: Wanted) -> Found:
    """Continuations side by side: from each of the first tokens on, the first child and so on."""
    found = Found.nothing(len(tokens), wanted)
    rows = np.arange(len(tokens))
    above = np.where(np.arange(tokens.shape[1]) < counts[:, None], parents, _NOWHERE)
    begins = above == ROOT
    for child in range(wanted.children):
        going = begins.any(1)
        node = begins.argmax(1)
        begins[rows, node] = False
        for slot in range(child * wanted.length, (child + 1) * wanted.length):
            found.tokens[:, slot] = np.where(going, tokens[rows, node], 0)
            found.live[:, slot] = going
            below = (above == node[:, None]) & going[:, None]
            going, node = below.any(1), below.argmax(1)
    return found


def cut_at_ends(continuations: Tokens) -> Tokens:
    """Continuations `[..., L]` with -1 from the first -1 on: nothing follows the end of a text."""
    ended = np.logical_or.accumulate(continuations < 0, axis=-1)
    return np.where(ended, NO_TOKEN, continuations)
