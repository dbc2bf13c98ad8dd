"""Trees of the continuations of a text's earlier occurrences, merged by weight."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specplan.runtime.sources.source import NO_TOKEN, ROOT, Flags, SourceDrafts, Tokens, Wanted

Weights = NDArray[np.float64]
_SCALE = np.int64(1 << 20)
"""Resolution of weights: this many parts of one."""


class Nodes(NamedTuple):
    """The nodes of R trees, those of a text together, its heaviest first.

    Attributes:
        texts: int64 `[K]`, the number of the text of each.
        ranks: `[K]`, its place among the nodes of its text.
        tokens: `[K]`.
        parents: `[K]`, ranks; -1 for nodes that begin a tree.
        counts: `[R]`, nodes of each text.
    """

    texts: Tokens
    ranks: Tokens
    tokens: Tokens
    parents: Tokens
    counts: Tokens


def continuation_trees(
    continuations: Tokens,
    texts: Tokens,
    count: int,
    wanted: Wanted,
    weights: Weights | None = None,
) -> SourceDrafts:
    """One tree for each of R texts, of the continuations of its occurrences.

    A node stands for all continuations that begin with its path, and weighs as much as they do
    together. Merged trees hold the heaviest nodes, among equals the shallower ones; continuations
    side by side are grown from the heaviest first tokens, each by its heaviest child.

    Args:
        continuations: int64 `[N, L]`, padded with -1 at the end.
        texts: int64 `[N]`, the number of the text of each.
        count: R.
        wanted: limits.
        weights: `[N]`, about 1 each; None for 1.
    """
    drafts = SourceDrafts.nothing(count, wanted)
    if not len(texts):
        return drafts
    nodes = _ranked(continuations, texts, count, weights)
    if wanted.nodes is None:
        _put_separate(nodes, wanted, drafts)
        return drafts
    heaviest = np.flatnonzero(nodes.ranks < wanted.size)
    ranks = nodes.ranks.take(heaviest)
    slots = nodes.texts.take(heaviest) * wanted.size + ranks
    drafts.tokens.ravel()[slots] = nodes.tokens.take(heaviest)
    drafts.parents.ravel()[slots] = nodes.parents.take(heaviest)
    drafts.live.ravel()[slots] = True
    return drafts


def _ranked(continuations: Tokens, texts: Tokens, count: int, weights: Weights | None) -> Nodes:
    """The nodes of each tree, heaviest first; see `continuation_trees`."""
    order = _order(continuations, texts, count)
    ordered, texts = continuations.take(order, axis=0).T, texts.take(order)
    length, rows = ordered.shape
    begins = _begins(ordered, texts)
    bounds = np.flatnonzero(begins)  # of nodes, the shallow first, each by its first row
    starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
    firsts = starts - starts // rows * rows
    masses = sizes if weights is None else _masses(firsts, sizes, weights.take(order))
    tokens = ordered.ravel().take(starts)
    live = np.flatnonzero(tokens >= 0)
    heaviest = int(masses.max()) + 1
    keys = (texts.take(firsts.take(live)) + 1) * heaviest - masses.take(live)
    small = np.min_scalar_type(count * heaviest)  # keys of 16 bits are sorted fast
    sorted_nodes = live.take(keys.astype(small).argsort(kind="stable"))
    text = texts.take(firsts.take(sorted_nodes))
    counts = np.bincount(text, minlength=count)
    rank = np.arange(len(sorted_nodes)) - np.repeat(counts.cumsum() - counts, counts)
    ranks = np.full(len(starts) + 1, ROOT)
    ranks[sorted_nodes + 1] = rank
    above = np.zeros((length + 1) * rows + 1, dtype=np.int64)  # 1 and up, one level below each
    begins.cumsum(out=above[rows:])
    parents = ranks.take(above.take(starts.take(sorted_nodes)))
    return Nodes(text, rank, tokens.take(sorted_nodes), parents, counts)


def _order(continuations: Tokens, texts: Tokens, count: int) -> Tokens:
    """Text by text, in the order of their tokens, so that equal beginnings meet."""
    tokens = continuations + 1
    bits = max(1, int(tokens.max()).bit_length())
    together = (63 - count.bit_length()) // bits
    packed = (tokens @ _units(bits, together, tokens.shape[1])).T
    packed[0] += texts << bits * together
    order: Tokens = np.lexsort(packed[::-1])
    return order


@lru_cache(maxsize=64)
def _units(bits: int, together: int, length: int) -> Tokens:
    """`[length, keys]`: factor of each token in each key, `together` tokens per key."""
    columns = np.arange(length)
    units = np.zeros((length, -(-length // together)), dtype=np.int64)
    units[columns, columns // together] = 1 << bits * (together - 1 - columns % together)
    return units


def _begins(columns: Tokens, texts: Tokens) -> Flags:
    """Flat flags of `[L, N]`: the first row of each path from the first token on.

    One more flag marks the end of all paths.

    Args:
        columns: `[L, N]`, continuations in order.
        texts: `[N]`, of each.
    """
    flat = np.ones(columns.size + 1, dtype=np.bool_)
    begins = flat[:-1].reshape(columns.shape)
    np.not_equal(columns[:, 1:], columns[:, :-1], out=begins[:, 1:])
    begins[0, 1:] |= texts[1:] != texts[:-1]
    for above, below in pairwise(begins):
        below |= above
    return flat


def _masses(firsts: Tokens, sizes: Tokens, weights: Weights) -> Tokens:
    """Weights of the continuations of nodes, in parts of `_SCALE`.

    Args:
        firsts: `[K]`, the first row of each.
        sizes: `[K]`, rows.
        weights: `[N]`, of rows.
    """
    total = np.concatenate([[0.0], np.cumsum(weights)])
    masses: Tokens = np.rint((total[firsts + sizes] - total[firsts]) * _SCALE).astype(np.int64)
    return masses


def _put_separate(nodes: Nodes, wanted: Wanted, drafts: SourceDrafts) -> None:
    """Continuations side by side: from each of the first tokens on, the first child and so on."""
    texts, width = len(nodes.counts), int(nodes.counts.max())
    if not width:
        return
    slots = nodes.texts * width + nodes.ranks
    tokens, below = np.zeros(texts * width + 1, np.int64), np.full(texts * width + 1, -1)
    tokens[slots] = nodes.tokens
    children = np.flatnonzero(nodes.parents != ROOT)[::-1]  # the heaviest is written last
    below[slots[children] - nodes.ranks[children] + nodes.parents[children]] = slots[children]
    roots = np.flatnonzero(nodes.parents == ROOT)
    text = nodes.texts[roots]
    counts = np.bincount(text, minlength=texts)
    child = np.arange(len(roots)) - (np.cumsum(counts) - counts)[text]
    within = child < wanted.children
    node = np.full((texts, wanted.children), -1)
    node[text[within], child[within]] = slots[roots[within]]
    shape = (texts, wanted.children, wanted.length)
    for step in range(wanted.length):
        drafts.tokens.reshape(shape)[:, :, step] = tokens[node]
        drafts.live.reshape(shape)[:, :, step] = node >= 0
        node = below[node]


def cut_at_ends(continuations: Tokens) -> Tokens:
    """Continuations `[..., L]` with -1 from the first -1 on: nothing follows the end of a text."""
    ended = continuations < 0
    for step in range(1, ended.shape[-1]):
        ended[..., step] |= ended[..., step - 1]
    return np.where(ended, NO_TOKEN, continuations)
