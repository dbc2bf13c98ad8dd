"""Passes of a language model of `transformers` over rows of texts, with gradients.

The runtime's own models join matrices and write in place, and so have no gradients; here the same
layers run as `transformers` has them, with the runtime's attention and masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specplan.ir.files import read_json
from specplan.runtime.models.ahead import states_ahead
from specplan.runtime.models.attention import ATTENTION_NAME, LayerMask, assert_attention
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.families import LayerMasks, RotaryFamily, windows_of
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.supported import FAMILIES, check_supported


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
        count: of its layers.
        groups: query heads per key/value head.
    """

    def __init__(self, model: Any) -> None:
        config = model.config
        self.model, self.count = model, int(config.num_hidden_layers)
        rotary = FAMILIES[config.model_type] is RotaryFamily
        self.stock: Any = None if rotary else FAMILIES[config.model_type](model)
        heads = config.num_attention_heads
        self.groups = heads // (getattr(config, "num_key_value_heads", None) or heads)
        named = signature(type(model.model.layers[0]).forward).parameters if rotary else {}
        self.store = "cache" if "cache" in named else "past_key_values"  # before transformers 5.20
        self.windows = windows_of(config, self.count) if rotary else ()

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Hidden states `[B, T, hidden]` before the first layer."""
        if self.stock is not None:
            return self.stock.embed(tokens, positions)  # type: ignore[no-any-return]
        return self.model.model.embed_tokens(tokens)  # type: ignore[no-any-return]

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        masks: LayerMasks,
        writer: Any,
        layers: tuple[int, int],
    ) -> Tensor:
        """See `specplan.runtime.models.families.Family.run`."""
        if self.stock is not None:
            return self.stock.run(hidden, positions, masks, writer, layers)  # type: ignore[no-any-return]
        inner, by_window = self.model.model, dict[int | None, LayerMask]()
        angles = inner.rotary_emb(hidden, position_ids=positions)
        for number in range(*layers):
            window, layer = self.windows[number], inner.layers[number]
            if window not in by_window:
                by_window[window] = masks(window)
            more = {self.store: writer, "position_embeddings": angles}
            hidden = layer(hidden, attention_mask=by_window[window], **more)
        return hidden

    def finish(self, states: Tensor) -> Tensor:
        """What the LM head reads, from hidden states after the last layer."""
        if self.stock is not None:
            return self.stock.finish(states)  # type: ignore[no-any-return]
        return self.model.model.norm(states)  # type: ignore[no-any-return]

    def ahead(
        self, texts: Texts, roots: Tensor, steps: int = 1, mask_token: int | None = None
    ) -> Iterator[Tensor]:
        """See `specplan.runtime.models.ahead.states_ahead`."""
        dtype = self.model.dtype
        return states_ahead(self, self.count, self.groups, dtype, texts, roots, steps, mask_token)


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
