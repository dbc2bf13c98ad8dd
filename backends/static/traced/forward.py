"""The op `forward` in a round that reads no number: as much text as may be pending, then nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specplan.backends.eager.passes.described import Stretch
from specplan.backends.eager.passes.forward import columns_of
from specplan.backends.eager.passes.logits import rows_of_pass
from specplan.backends.eager.passes.one_pass import run_pass
from specplan.backends.eager.state.known_slots import Fresh, Placement
from specplan.backends.ops.tensors.values import Logits, Nodes

if TYPE_CHECKING:
    from specplan.backends.static.tracing import RoundRun


def run_forward(
    run: RoundRun, stretch: Stretch, operands: Sequence[Nodes], place: Placement | Fresh | None
) -> list[Logits]:
    """Run a model on nodes, and on text that its layers lack.

    Args:
        run: the round, its caches and tracks.
        stretch: which layers run, from what, and what is kept.
        operands: nodes, of one tree each; the root of all is the same.
        place: their slots, where they are known.

    Returns:
        Rows of each operand, for each thing that the pass gives.
    """
    cache, texts = run.caches.get(stretch.cache or ""), run.batch
    width = 0
    if cache is not None:
        cache.follow(texts.lengths)
        width = cache.texts(stretch)
    call = columns_of(run, stretch, cache, operands, width)
    passed = run_pass(run, stretch, cache, call, place)
    if cache is not None and call.texts and stretch.segments:
        lengths = texts.lengths
        if stretch.features is not None and not stretch.inside:  # up to the first that was lacking
            lacking = call.live[:, : call.texts] & ~passed.live[:, : call.texts]
            lengths = call.positions[:, : call.texts].where(lacking, texts.ends).amin(1)
            lengths = lengths.maximum(cache.resident(stretch.segments, stretch.scratch)[:, 0])
        cache.advance(stretch, lengths, run.taking_part())
    return rows_of_pass(run, stretch, call, passed, operands)
