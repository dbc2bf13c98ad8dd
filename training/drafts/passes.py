"""Passes of a language model of `transformers` over rows of texts, with gradients.

The runtime's own models join matrices and write in place, and so have no gradients; here the same
layers run as `transformers` has them, with the runtime's attention and masks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specplan.ir.files import read_json
from specplan.runtime.models.attention import ATTENTION_NAME, LayerMask, additive_mask
from specplan.runtime.models.causal import CausalModel, assert_attention
from specplan.runtime.models.families import (
    FAMILIES,
    LayerMasks,
    RotaryFamily,
    check_supported,
    windows_of,
)
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import Unrolled


def trainable_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """A checkpoint as `transformers` loads it, with the runtime's attention.

    Args:
        folder: config.json and safetensors.
        dtype: of its weights in training.
        device: of its weights.

    Raises:
        MissingCapabilityError: the architecture is not supported; names it.
    """
    check_supported(read_json(folder / "config.json", "model configuration"), str(folder))
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(folder),
        dtype=dtype,
        attn_implementation=ATTENTION_NAME,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    assert_attention(model)
    return model.to(device).eval()  # without dropout


class Stack:
    """The layers of a model of `transformers`, from tokens to what its LM head reads.

    Args:
        model: as from `trainable_model`.

    Attributes:
        layers: how many.
        groups: query heads per key/value head.
    """

    def __init__(self, model: Any) -> None:
        config = model.config
        self.model, self.layers = model, int(config.num_hidden_layers)
        rotary = FAMILIES[config.model_type] is RotaryFamily
        self.stock: Any = None if rotary else FAMILIES[config.model_type](model)
        heads = config.num_attention_heads
        self.groups = heads // (getattr(config, "num_key_value_heads", None) or heads)
        self.windows = windows_of(config, self.layers) if rotary else (None,) * self.layers

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Hidden states `[B, T, hidden]` before the first layer."""
        if self.stock is not None:
            return self.stock.embed(tokens, positions)  # type: ignore[no-any-return]
        return self.model.model.embed_tokens(tokens)  # type: ignore[no-any-return]

    def run(self, states: Tensor, positions: Tensor, masks: LayerMasks) -> Tensor:
        """Hidden states after all layers.

        Args:
            states: before the first one, `[B, T, hidden]`.
            positions: int64 `[B, T]`.
            masks: from the sliding window of a layer, None for none, to its mask.
        """
        if self.stock is not None:
            span = (0, self.layers)
            return self.stock.run(states, positions, masks, _Unstored(), span)  # type: ignore[no-any-return]
        inner, by_window = self.model.model, dict[int | None, LayerMask]()
        angles = inner.rotary_emb(states, position_ids=positions)
        for layer, window in zip(inner.layers, self.windows, strict=True):
            if window not in by_window:
                by_window[window] = masks(window)
            mask = by_window[window]
            states = layer(states, attention_mask=mask, position_embeddings=angles)
        return states

    def finish(self, states: Tensor) -> Tensor:
        """What the LM head reads, from hidden states after the last layer."""
        if self.stock is not None:
            return self.stock.finish(states)  # type: ignore[no-any-return]
        return self.model.model.norm(states)  # type: ignore[no-any-return]

    def over(self, texts: Texts) -> Tensor:
        """What the LM head reads at every token of some texts, none of which sees another."""
        seen, positions = texts.causal(), texts.positions

        def masks(window: int | None) -> LayerMask:
            distance = positions[:, :, None] - positions[:, None]
            visible = seen if window is None else seen & (distance < window)
            return additive_mask(visible, self.groups, self.model.dtype)

        entered = self.embed(texts.tokens, positions)
        return self.finish(self.run(entered, positions, masks))


class _Unstored(Unrolled):
    """A cache of one pass: every layer attends to what it has just made."""

    def note(self, queries: Tensor, layer_idx: int) -> None:
        """Queries are not stored."""


def runtime_model(model: Any, name: str) -> CausalModel:
    """The runtime's form of a copy of a model, with the weights as they are.

    Args:
        model: as from `trainable_model`.
        name: in messages.
    """
    from copy import deepcopy

    twin = deepcopy(model)
    twin.config._attn_implementation = ATTENTION_NAME
    return CausalModel(twin, name=name, digest=f"{name} in training")
