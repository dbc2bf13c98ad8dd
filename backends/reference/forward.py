"""The op `forward` of the interpreter: catch up the text, run one pass, keep what is asked for."""

from __future__ import annotations

import torch

from specplan.backends.reference.batch import Batch
from specplan.backends.reference.caches import CacheUse
from specplan.backends.reference.columns import rows_of
from specplan.backends.reference.one_pass import Pass, Stretch, Texts, prepare_pass
from specplan.backends.reference.values import Nodes, Rows


def run_forward(
    batch: Batch, cache: CacheUse, nodes: Nodes, pending: int, stretch: Stretch
) -> tuple[Rows | None, Pass]:
    """Run a cache's model on nodes; text its layers lack comes first when the root is among them.

    Args:
        batch: the requests.
        cache: of the model that runs.
        nodes: of one tree.
        pending: most text tokens, root included, to catch up in this pass.
        stretch: which layers run, from what, and what is kept.

    Returns:
        Logits of the nodes, in their order, None where no logits are wanted; and what was run.
    """
    layers = stretch.layers
    with_root = nodes.holds_root or layers not in cache.passes(stretch.scratch)
    if with_root:
        batch.catch_up(cache, max(pending, 1))
    call = prepare_pass(
        Texts(batch.text, batch.length_tensor()),
        torch.tensor(cache.lengths, device=batch.device),
        _text_columns(batch, cache) if with_root else 0,
        nodes,
        cache,
        stretch,
        cache.store.trash,
        lambda: torch.arange(max(batch.lengths) + cache.taken, device=batch.device),
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
    )
    if stretch.keep is not None and isinstance(nodes.drafted, tuple):
        stretch.keep.write(cache, nodes.drafted, call.slots, hidden)
    if with_root and not stretch.scratch and cache.caught_up:
        cache.lengths = [
            max(done, now) for done, now in zip(cache.lengths, batch.lengths, strict=True)
        ]
    if not stretch.logits:
        return None, call
    return rows_of(nodes, with_root, cache.model.logits(hidden, call.gather)), call


def _text_columns(batch: Batch, cache: CacheUse) -> int:
    """Most text tokens some row has pending; the root is always run, resident or not."""
    return max(1, *(now - done for now, done in zip(batch.lengths, cache.lengths, strict=True)))
