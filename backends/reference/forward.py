"""The op `forward` of the interpreter: catch up the text, run one pass, keep what is asked for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specplan.backends.reference.batch import Batch
from specplan.backends.reference.caches import CacheUse
from specplan.backends.reference.columns import numbers_of_all, rows_of_each
from specplan.backends.reference.one_pass import Pass, Stretch, Texts, prepare_pass
from specplan.backends.reference.values import Nodes, Rows


def run_forward(
    batch: Batch, cache: CacheUse, trees: Sequence[Nodes], pending: int, stretch: Stretch
) -> tuple[list[Rows], Pass]:
    """Run a cache's model on nodes; text its layers lack comes first when the root is among them.

    Args:
        batch: the requests.
        cache: of the model that runs.
        trees: nodes, of one tree each; the root of all is the same.
        pending: most text tokens, root included, to catch up in this pass.
        stretch: which layers run, from what, and what is kept.

    Returns:
        Logits of the nodes of each tree, in their order, none where no logits are wanted; and what
        was run.
    """
    layers = stretch.layers
    holds_root = any(nodes.holds_root for nodes in trees)
    with_root = holds_root or layers not in cache.passes(stretch.scratch)
    if with_root:
        most = max(pending, 1)  # a small cache has no room for more than it takes in at once
        batch.catch_up(cache, most if cache.kept is None else min(most, cache.kept.chunk + 1))
    call = prepare_pass(
        Texts(batch.text, batch.length_tensor()),
        torch.tensor(cache.lengths, device=batch.device),
        _text_columns(batch, cache) if with_root else 0,
        trees,
        cache,
        stretch,
        cache.store.trash,
        cache.shift,
        lambda: torch.arange(_furthest(batch, cache) + cache.taken, device=batch.device),
    )
    features = None if stretch.features is None else stretch.features.read(call.slots)
    hidden = cache.model.hidden(
        call.tokens,
        call.positions,
        call.slots,
        call.mask,
        cache.store,
        layers,
        features,
        stretch.skips,
        _latest(batch, cache, with_root and not stretch.scratch),
    )
    if stretch.keep is not None:
        stretch.keep.write(cache, numbers_of_all(trees), call.slots, hidden)
    if with_root and not stretch.scratch and cache.caught_up:
        cache.lengths = [
            max(done, now) for done, now in zip(cache.lengths, batch.lengths, strict=True)
        ]
    if not stretch.logits:
        return [], call
    return rows_of_each(trees, with_root, cache.model.logits(hidden, call.gather)), call


def _latest(batch: Batch, cache: CacheUse, read: bool) -> torch.Tensor | None:
    """The root's column of each request, int64 `[B]`, where a pass reads it for good."""
    if not read or cache.store.queries is None:
        return None
    column = _text_columns(batch, cache) - 1
    return torch.full((batch.size,), column, device=batch.device)


def _furthest(batch: Batch, cache: CacheUse) -> int:
    """Slots that the longest text takes in a cache."""
    return max(
        length - forgotten for length, forgotten in zip(batch.lengths, cache.forgotten, strict=True)
    )


def _text_columns(batch: Batch, cache: CacheUse) -> int:
    """Most text tokens some row has pending; the root is always run, resident or not."""
    return max(1, *(now - done for now, done in zip(batch.lengths, cache.lengths, strict=True)))
