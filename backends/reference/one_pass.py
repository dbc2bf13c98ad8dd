"""Tokens, positions, slots and mask of one pass over text and drafted nodes.

A row's columns are its pending text tokens, ending with the root, and then the drafted nodes. Text
tokens live in the slot of their position; the drafted node with offset o in a cache lives in slot
(text length + o), so that an accepted chain is in place already. A pass over some of the layers
writes to the same slots as one over the others, and a track keeps hidden states by these slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.backends.reference.caches import TrackUse
from specplan.backends.reference.columns import attention_mask, node_columns, window_mask
from specplan.backends.reference.slots import Layers, NodeSlots
from specplan.backends.reference.values import Nodes
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.ops import Forward


@dataclass(frozen=True)
class Texts:
    """What is written so far.

    Attributes:
        tokens: int64 `[B, S]`.
        lengths: tokens of each text, int64 `[B]`.
    """

    tokens: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class Pass:
    """Inputs of one model call.

    Attributes:
        tokens: int64 `[B, T]`.
        positions: int64 `[B, T]`.
        slots: int64 `[B, T]`, where keys and values go.
        mask: bool `[B, T, U]`, which of the first U slots each token attends to.
        gather: int64 `[B, R]`, which tokens get logits; None for all.
        prefix: int64 `[B]`, see `PrefixMask`, with `mask` for what that sees `[B or 1, T, W]`; None
            where the mask tells of all slots.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    mask: Tensor
    gather: Tensor | None
    prefix: Tensor | None = None


@dataclass(frozen=True)
class Stretch:
    """The part of a model's stack that a forward runs.

    Attributes:
        layers: half-open span.
        features: hidden states that enter it; None for the tokens' embeddings.
        keep: where the hidden states that leave it are recorded, if anywhere.
        logits: whether rows of logits are wanted.
        skips: blocks that are left out.
        scratch: what is written is no part of the text: a later pass of the round, or the next
            round, writes over it.
    """

    layers: Layers
    features: TrackUse | None = None
    keep: TrackUse | None = None
    logits: bool = True
    skips: Skips = NO_SKIPS
    scratch: bool = False


def stretch_of(op: Forward, num_layers: int, tracks: Mapping[str, TrackUse]) -> Stretch:
    """What a forward runs of a model with `num_layers` layers."""
    return Stretch(
        (op.layers[0].start, op.layers[0].stop) if op.layers else (0, num_layers),
        None if op.features is None else tracks[op.features],
        None if op.keep is None else tracks[op.keep],
        logits=op.gives != (),
        skips=Skips.read(op.skip),
        scratch=op.write == "scratch",
    )


def pending_of(op: Forward) -> int:
    """Most text tokens that a forward may catch up, the root included."""
    return op.pending if isinstance(op.pending, int) else op.pending[0]


def prepare_pass(
    texts: Texts,
    resident: Tensor,
    columns: int,
    trees: Sequence[Nodes],
    cached: NodeSlots,
    stretch: Stretch,
    trash: int,
    shift: Tensor | int,
    keys: Callable[[], Tensor] | None,
) -> Pass:
    """A pass over pending text and nodes, which get their slots here.

    Args:
        texts: of the requests.
        resident: int64 `[B]`, text tokens that the cache holds.
        columns: of text, no fewer than any request has pending; the root, which is always run, is
            the last of them. 0 where the root is not run.
        trees: nodes, of one tree each.
        cached: slots of the cache's nodes.
        stretch: which layers run.
        trash: the slot that dead lanes write to.
        shift: slots that text stands further to the front than its positions, int64 `[B, 1]`.
        keys: the slots attended to, `0 .. U - 1`; asked once the nodes have slots. None for the
            mask of a prefix and what comes after it.
    """
    lengths = texts.lengths[:, None]
    written = lengths + torch.arange(-columns, 0, device=lengths.device)
    placed = [node_columns(nodes, cached, stretch.layers, stretch.scratch) for nodes in trees]
    live = written >= resident[:, None].minimum(lengths - 1)
    ends = lengths - shift
    slots = torch.cat([(written - shift).where(live, trash), *(ends + one[0] for one in placed)], 1)
    tokens = [one[2] for one in placed]
    text = texts.tokens.gather(1, written.clamp(min=0))
    gather = None
    if columns > 1:
        last = torch.arange(
            columns - 1, columns + sum(nodes.width for nodes in trees), device=lengths.device
        )
        gather = last.expand(len(lengths), -1)
    if keys is None:
        mask = window_mask(trees, cached, [one[0] for one in placed], columns, lengths)
    else:
        mask = attention_mask(trees, cached, slots, columns, ends, keys())
    return Pass(
        tokens=torch.cat([text, *tokens], 1),
        positions=torch.cat([written, *(lengths - 1 + one[1] for one in placed)], 1),
        slots=slots,
        mask=mask,
        gather=gather,
        prefix=(ends - columns)[:, 0] if keys is None else None,
    )
