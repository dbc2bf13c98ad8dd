"""How each supported model family turns tokens and positions into hidden states.

A family is a class with three methods, one for each stage: `embed`, `run` for some of the layers,
and `finish`; adding one is writing that class and naming its `model_type` in `supported.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.runtime.models.attention import LayerMask
from specplan.runtime.models.kv_cache import CacheWriter
from specplan.runtime.models.recurrent.states import Shapes
from specplan.runtime.models.rotary_layers import RotaryLayer, for_rotation, norm_of, rms_norm

LayerMasks = Callable[[int | None], LayerMask]
"""From a layer's window (None: whole context) to its mask."""


class Family(Protocol):
    """One model, between token ids and the language model head.

    Attributes:
        windows: per layer, the sliding window in positions, or None.
        kv_heads: key/value heads per layer.
        heads: query heads per layer.
        head_dim: size of a head.
        packs: its layers run on columns of several rows one after another (`packed.py`).
        states: per layer, shapes of its recurrent state, each without batch; empty for none.
        keyless: layers that have no keys and values.
    """

    packs: bool
    states: Sequence[Shapes]
    keyless: frozenset[int]

    windows: tuple[int | None, ...]
    heads: int
    kv_heads: int
    head_dim: int

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Hidden states `[B, T, hidden]` before the first layer; new memory."""
        ...

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: CacheWriter,
        layers: tuple[int, int],
        skips: Skips = NO_SKIPS,
    ) -> Tensor:
        """Hidden states after a half-open span of layers, without the blocks of `skips`.

        What stock post-norm layers do after a block (OPT-350m) is done in any case; `hidden` may be
        changed in place.
        """
        ...

    def finish(self, hidden: Tensor) -> Tensor:
        """The input of the language model head, from hidden states after any layer."""
        ...


class RotaryFamily:
    """Llama, Mistral, Qwen2, Qwen3: rotary positions, RMSNorm, gated MLP."""

    packs = True
    states: Sequence[Shapes] = ()
    keyless: frozenset[int] = frozenset()

    def __init__(self, model: Any) -> None:
        inner = model.model
        self.embedding = inner.embed_tokens
        self.rotary = inner.rotary_emb
        self.angles = angles_of(self.rotary)
        self.final_norm = norm_of(inner.norm)
        self.layers: Sequence[RotaryLayer] = [
            RotaryLayer(layer, index) for index, layer in enumerate(inner.layers)
        ]
        first = self.layers[0]
        self.heads, self.kv_heads, self.head_dim = first.heads, first.kv_heads, first.head_dim
        self.windows = windows_of(model.config, len(self.layers))

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """See `Family.embed`."""
        return self.embedding(tokens)  # type: ignore[no-any-return]

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: CacheWriter,
        layers: tuple[int, int],
        skips: Skips = NO_SKIPS,
    ) -> Tensor:
        """See `Family.run`."""
        batch, count, width = hidden.shape
        cos, sin = for_rotation(*self.angles(hidden, positions))
        flat = hidden.view(batch * count, width)
        for index in range(*layers):
            flat = self.layers[index](flat, masks(self.windows[index]), cos, sin, writer, skips)
        return flat.view(batch, count, width)

    def finish(self, hidden: Tensor) -> Tensor:
        """See `Family.finish`."""
        return rms_norm(hidden, self.final_norm)


class _StockFamily(ABC):
    """A family whose stock layers run as they are."""

    packs = False
    states: Sequence[Shapes] = ()
    keyless: frozenset[int] = frozenset()

    def __init__(self, config: Any) -> None:
        self.heads: int = config.num_attention_heads
        self.kv_heads = self.heads
        self.head_dim: int = config.hidden_size // self.heads
        self.windows: tuple[int | None, ...] = (None,) * config.num_hidden_layers

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: CacheWriter,
        layers: tuple[int, int],
        skips: Skips = NO_SKIPS,
    ) -> Tensor:
        """See `Family.run`."""
        mask = masks(None)
        for index in range(*layers):
            hidden = self.layer(index, hidden, mask, writer, skips)
        return hidden

    @abstractmethod
    def layer(
        self, index: int, hidden: Tensor, mask: LayerMask, writer: CacheWriter, skips: Skips
    ) -> Tensor:
        """Hidden states after one layer."""


class Gpt2Family(_StockFamily):
    """GPT-2: learned positions, stock layers."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.config)
        self.inner = model.transformer

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """See `Family.embed`."""
        return self.inner.wte(tokens) + self.inner.wpe(positions)  # type: ignore[no-any-return]

    def layer(
        self, index: int, hidden: Tensor, mask: LayerMask, writer: CacheWriter, skips: Skips
    ) -> Tensor:
        """See `_StockFamily.layer`."""
        block = self.inner.h[index]
        if index not in skips.attentions:
            given = block.ln_1(hidden)
            mixed, _ = block.attn(given, past_key_values=writer, attention_mask=mask, noting=writer)
            hidden = mixed + hidden
        if index not in skips.mlps:
            hidden = hidden + block.mlp(block.ln_2(hidden))
        return hidden

    def finish(self, hidden: Tensor) -> Tensor:
        """See `Family.finish`."""
        return self.inner.ln_f(hidden)  # type: ignore[no-any-return]


class OptFamily(_StockFamily):
    """OPT: learned positions with an offset, stock layers, norm before or after."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.config)
        self.inner = model.model.decoder

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """See `Family.embed`."""
        inner = self.inner
        hidden = inner.embed_tokens(tokens)
        if inner.project_in is not None:
            hidden = inner.project_in(hidden)
        hidden = hidden + inner.embed_positions(None, 0, position_ids=positions)
        return hidden  # type: ignore[no-any-return]

    def layer(
        self, index: int, hidden: Tensor, mask: LayerMask, writer: CacheWriter, skips: Skips
    ) -> Tensor:
        """See `_StockFamily.layer`."""
        stock = self.inner.layers[index]
        if index not in skips.attentions and index not in skips.mlps:
            whole = stock(hidden, attention_mask=mask, past_key_values=writer, noting=writer)
            return whole  # type: ignore[no-any-return]
        before: bool = stock.do_layer_norm_before  # norms after a block that is left out stay
        if index not in skips.attentions:
            given = stock.self_attn_layer_norm(hidden) if before else hidden
            mixed, _ = stock.self_attn(
                given, past_key_values=writer, attention_mask=mask, noting=writer
            )
            hidden = hidden + mixed
        hidden = hidden if before else stock.self_attn_layer_norm(hidden)
        if index not in skips.mlps:
            given = stock.final_layer_norm(hidden) if before else hidden
            hidden = hidden + stock.fc2(stock.activation_fn(stock.fc1(given)))
        return hidden if before else stock.final_layer_norm(hidden)

    def finish(self, hidden: Tensor) -> Tensor:
        """See `Family.finish`."""
        inner = self.inner
        if inner.final_layer_norm is not None:
            hidden = inner.final_layer_norm(hidden)
        return hidden if inner.project_out is None else inner.project_out(hidden)


def angles_of(rotary: Any) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Cosines and sines of positions, as a stock module computes them.

    Without its `torch.no_grad`: we never run with gradients, and tracing a change of mode in every
    pass made exports several times longer.
    """
    forward = type(rotary).forward
    if forward.__code__.co_name == "decorate_context":
        forward = forward.__wrapped__
    return partial(forward, rotary)


def windows_of(config: Any, num_layers: int) -> tuple[int | None, ...]:
    """The sliding window of each layer, in positions.

    Mistral applies its window to every layer; Qwen2 and Qwen3 where `layer_types` says so.
    """
    window = getattr(config, "sliding_window", None)
    if config.model_type == "mistral":
        return (window,) * num_layers
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * num_layers
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
