"""Bytes that come and go within a forward pass, at their highest.

Counted as an eager runtime holds them (fused kernels hold less). The tests compare every count with
what the allocator really gave; `specplan.cost_models.memory.buffers` counts whole rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specplan.cost_models.cost import Quantity, maximum, minimum
from specplan.cost_models.models.layers import (
    Attention,
    GroupedAttention,
    LatentAttention,
    LayerShape,
    StateMixer,
)
from specplan.cost_models.models.model_shape import ModelShape

PREFILL_CHUNK = 512
"""Prompt tokens that run in one pass at most."""
_FLOAT32 = 4.0
_INDEX_BYTES = 40.0
"""Tokens, positions, slots and their masks, per query token: five int64."""
_PLAIN_MLPS = {"gpt2": (4.0, 2), "opt": (2.0, 1)}
"""Of MLPs without a gate, by architecture: inner widths alive at once (GPT-2's GELU is a polynomial
in a tanh, in four steps), and streams of the hidden width; (2, 2) for others."""


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Bytes that are alive at once, at the highest.

    Attributes:
        activations: hidden states, projections, masks.
        logits: logits and laws, over the vocabulary.
    """

    activations: Quantity = 0.0
    logits: Quantity = 0.0

    @property
    def total(self) -> Quantity:
        """Both."""
        return self.activations + self.logits


def peak_of(one: MemoryPeak, other: MemoryPeak) -> MemoryPeak:
    """The one with more bytes alive, cell by cell; the first where they are equal."""
    more = other.total > one.total
    if not isinstance(more, np.ndarray):
        return other if more else one
    return MemoryPeak(
        np.where(more, other.activations, one.activations),
        np.where(more, other.logits, one.logits),
    )


@dataclass(frozen=True, slots=True)
class PassParts:
    """What a forward pass takes, bytes.

    Attributes:
        always: from its beginning to its end: indices, masks, rotary factors, the residual stream.
        layers: within the widest layer.
        gathered: hidden states of the tokens that get logits.
        cast: logits in the model's own number type, before they are float32.
        logits: what it gives.
    """

    always: Quantity
    layers: Quantity
    gathered: Quantity
    cast: Quantity
    logits: Quantity

    @property
    def peak(self) -> MemoryPeak:
        """The highest: within a layer, or when logits are made."""
        end = MemoryPeak(self.always + self.gathered, self.logits + self.cast)
        return peak_of(end, MemoryPeak(self.always + self.layers))


def pass_parts(
    shape: ModelShape, batch: Quantity, tokens: Quantity, slots: Quantity, rows: int
) -> PassParts:
    """What a forward pass takes.

    Args:
        shape: the model.
        batch: sequences, a number or an array [cells].
        tokens: query tokens per sequence, a number or an array [cells].
        slots: cache slots that attention reads, a number or an array [cells].
        rows: rows of logits per sequence.
    """
    sizes, count = _sizes(shape), batch * tokens
    mask = sizes.mask_of_one + (tokens > 1) * (sizes.mask_of_many - sizes.mask_of_one)
    cast = batch * rows * shape.vocab_size * sizes.width if sizes.width < _FLOAT32 else 0.0
    return PassParts(
        always=count * (sizes.token_bytes + slots * mask),
        layers=count * sizes.layer_bytes,
        gathered=batch * rows * shape.embedding_size * sizes.width,
        cast=cast,
        logits=row_bytes(shape, batch, rows),
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What a pass of a model needs per query token, bytes.

    Attributes:
        width: of one activation.
        token_bytes: indices, rotary factors and the residual stream.
        layer_bytes: within the widest layer.
        mask_of_one: per slot, where a sequence has one query token.
        mask_of_many: per slot, where it has more.
    """

    width: float
    token_bytes: float
    layer_bytes: float
    mask_of_one: float
    mask_of_many: float


def _sizes(shape: ModelShape) -> _Sizes:
    """Read off a shape once and stored on it: hashing a shape costs more than this does."""
    known: _Sizes | None = shape.__dict__.get("_workspace_sizes")
    if known is not None:
        return known
    width = shape.activation_width
    sizes = _Sizes(
        width=width,
        token_bytes=_INDEX_BYTES + (2 * _rotary_width(shape) + shape.hidden_size) * width,
        layer_bytes=width
        * max((_layer_elements(shape, kind) for kind in set(shape.layers)), default=0),
        mask_of_one=_mask_bytes(shape, 1),
        mask_of_many=_mask_bytes(shape, 2),
    )
    shape.__dict__["_workspace_sizes"] = sizes
    return sizes


def prefill_peak(shape: ModelShape, batch: Quantity, prompt_tokens: Quantity) -> MemoryPeak:
    """The peak of a prompt, all but its last token, in chunks."""
    tokens = maximum(prompt_tokens - 1, 1)
    rest = tokens % PREFILL_CHUNK
    left = pass_parts(shape, batch, rest, tokens, 1)
    whole = pass_parts(shape, batch, minimum(tokens, PREFILL_CHUNK), tokens - rest, 1)
    return peak_of(left.peak, whole.peak)


def row_bytes(shape: ModelShape, batch: Quantity, rows: int) -> Quantity:
    """Rows over the vocabulary, in float32 at least."""
    return batch * rows * shape.vocab_size * max(shape.activation_width, _FLOAT32)


def _mask_bytes(shape: ModelShape, tokens: int) -> float:
    """Per query token and slot: who sees whom as booleans, and what is added to the scores.

    The latter once per kind of window; the queries of one key head are stacked, so that it is
    repeated for each of them, while for a single query token it is expanded, which takes nothing.
    """
    groups = 1
    if not shape.layers:
        return 0.0
    first = next(shape.attentions, None)
    if isinstance(first, GroupedAttention) and tokens > 1:
        groups = first.num_heads // first.num_kv_heads
    return 1.0 + shape.activation_width * groups * len(set(shape.layer_windows))


def _rotary_width(shape: ModelShape) -> int:
    first = next(shape.attentions, None)
    if shape.learned_positions or first is None:
        return 0
    return first.head_dim if isinstance(first, GroupedAttention) else first.rope_dim


def _layer_elements(shape: ModelShape, layer: LayerShape) -> float:
    """Most elements per token alive within a layer, without the residual stream."""
    attention, mlp = layer.attention, layer.mlp
    inner, streams = _PLAIN_MLPS.get(shape.architecture, (2.0, 2))
    if mlp.gated:
        inner = 1.5  # gate and up, and the activated half
    others = attention.query_width if streams > 1 and attention else 0  # attention's output
    within = inner * mlp.active_width + streams * shape.hidden_size + others
    mixing = 0 if layer.mixer is None else _mixer_elements(shape, layer.mixer)
    return max(within, mixing, 0 if attention is None else _attention_elements(shape, attention))


def _mixer_elements(shape: ModelShape, mixer: StateMixer) -> int:
    """Input and its projection, what the recurrence reads, the output, normed and gated."""
    inner = mixer.channels + mixer.rates * mixer.heads
    return shape.hidden_size + mixer.input_width + inner + 3 * mixer.value_width


def _attention_elements(shape: ModelShape, attention: Attention) -> int:
    hidden, queries = shape.hidden_size, attention.query_width
    if isinstance(attention, LatentAttention):
        expanded = attention.expanded_width + attention.cached_elements
        return hidden + 2 * queries + expanded + attention.value_width
    joined = queries + 2 * attention.key_width
    if shape.learned_positions:
        return hidden + joined + 2 * queries
    turned = queries + attention.key_width
    normed = 2 if attention.norm_parameters else 0  # normed parts, and both joined
    rotating = joined + (3 + normed) * turned
    attending = joined + turned + 3 * queries
    return hidden + max(rotating, attending)
