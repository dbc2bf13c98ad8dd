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
    continuations: Tokens,
    texts: Tokens,
    count: int,
    wanted: Wanted,
    weights: Weights | None = None,
) -> Found:
    """One tree for each of R texts, of the continuations that its occurrences had.

    A node stands for all continuations that begin with its path, and weighs as much as they do
    together. Merged trees hold the heaviest nodes, among equals the shallower ones; continuations
    side by side are grown from the heaviest first tokens, each by its heaviest child.

    Args:
        continuations: int64 `[N, L]`, padded with -1 at the end.
        texts: int64 `[N]`, the number of the text of each.
        count: R.
        wanted: how much of them.
        weights: `[N]`, about 1 each; None for 1.
    """
    most = wanted.size if wanted.nodes is not None and weights is None else None
    tokens, parents, counts = _ranked(continuations, texts, count, weights, most)
    if wanted.nodes is None:
        return _apart(tokens, parents, counts, wanted)
    found = Found.nothing(count, wanted)
    width = min(found.tokens.shape[1], tokens.shape[1])
    found.tokens[:, :width] = tokens[:, :width]
    found.parents[:, :width] = parents[:, :width]
    found.live[:, :width] = np.arange(width) < counts[:, None]
    return found


def _ranked(
    continuations: Tokens,
    texts: Tokens,
    count: int,
    weights: Weights | None,
    enough: int | None,
) -> tuple[Tokens, Tokens, Tokens]:
    """The nodes of each tree, heaviest first: tokens and parents `[R, K]`, and how many `[R]`.

    Args:
        continuations: see `continuation_trees`, and so texts, count and weights.
        texts: of each.
        count: R.
        weights: of each.
        enough: so many nodes of each tree suffice: of what stands for one continuation, the
            shallower come first, and what is deeper than enough of them is left out.
    """
    order = _order(continuations, texts)
    ordered, texts = continuations[order], texts[order]
    rows, length = ordered.shape
    differs = np.ones(ordered.shape, dtype=np.bool_)
    first = np.ones(rows, dtype=np.bool_)
    first[1:] = texts[1:] != texts[:-1]
    differs[1:] = (ordered[1:] != ordered[:-1]) | first[1:, None]
    for depth in range(1, length):
        differs[:, depth] |= differs[:, depth - 1]
    live = differs & (ordered >= 0)
    masses = _masses(differs, None if weights is None else weights[order])
    if enough is not None and rows:
        levels = np.add.reduceat(live.astype(np.int64), np.flatnonzero(first))
        shallower = np.cumsum(levels, axis=1) - levels
        live &= (masses > _SCALE) | (shallower < enough)[np.cumsum(first) - 1]
    row, depths = np.nonzero(live)
    span = np.int64(rows + 2) * _SCALE  # one number for text, weight and depth
    keys = ((texts[row] + 1) * span - masses[row, depths]) * length + depths
    by_weight = np.argsort(keys, kind="stable")
    row, depths = row[by_weight], depths[by_weight]
    text = texts[row]
    counts = np.bincount(text, minlength=count)
    rank = np.arange(len(row)) - (np.cumsum(counts) - counts)[text]
    ranks = np.zeros(ordered.shape, dtype=np.int64)
    ranks[row, depths] = rank
    begins = np.where(differs, np.arange(rows)[:, None], 0)
    np.maximum.accumulate(begins, axis=0, out=begins)
    above = np.maximum(depths - 1, 0)
    tokens = np.zeros((count, int(counts.max(initial=0))), dtype=np.int64)
    parents = np.full_like(tokens, ROOT)
    tokens[text, rank] = ordered[row, depths]
    parents[text, rank] = np.where(depths > 0, ranks[begins[row, above], above], ROOT)
    return tokens, parents, counts


def _order(continuations: Tokens, texts: Tokens) -> Tokens:
    """Text by text, in the order of their tokens, so that equal beginnings meet."""
    length = continuations.shape[1]
    keys = [continuations[:, column] + 1 for column in range(length)]
    pairs = [one << 32 | two for one, two in zip(keys[::2], keys[1::2], strict=False)]
    pairs += keys[-1:] if length % 2 else []
    found: Tokens = np.lexsort((*reversed(pairs), texts))
    return found


def _masses(differs: NDArray[np.bool_], weights: Weights | None) -> Tokens:
    """`[N, L]`: what continuations weigh up to the next other beginning, in parts of `_SCALE`."""
    rows = len(differs)
    following = np.full(differs.shape, rows)
    starts = np.where(differs[1:], np.arange(1, rows)[:, None], rows)
    following[:-1] = np.minimum.accumulate(starts[::-1], axis=0)[::-1]
    if weights is None:
        counts: Tokens = (following - np.arange(rows)[:, None]) * _SCALE
        return counts
    total = np.concatenate([[0.0], np.cumsum(weights)])
    found: Tokens = np.rint((total[following] - total[:-1, None]) * _SCALE).astype(np.int64)
    return found


def _apart(tokens: Tokens, parents: Tokens, counts: Tokens, wanted: Wanted) -> Found:
    """Continuations side by side: from each of the first tokens on, the first child and so on."""
    found = Found.nothing(len(tokens), wanted)
    rows = np.arange(len(tokens))
    above = np.where(np.arange(tokens.shape[1]) < counts[:, None], parents, _NOWHERE)
    if not tokens.shape[1]:
        return found
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
