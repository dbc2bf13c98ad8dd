"""Transformer layers of heads: those of `transformers`, with other inputs."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from specplan.cost_models.models.heads.description import Body
from specplan.runtime.models.attention import ATTENTION_NAME, LayerMask
from specplan.runtime.models.families import RotaryFamily, angles_of, windows_of
from specplan.runtime.models.kv_cache import CacheWriter
from specplan.runtime.models.rotary_layers import RotaryLayer, for_rotation
from specplan.runtime.models.supported import FAMILIES


class Norm(nn.Module):
    """Root mean square norm (arXiv 1910.07467), with a weight and perhaps a bias, or without.

    Args:
        width: of what it norms.
        epsilon: added to the mean square.
        bias: with a bias (MLP speculators).
        weight: with a weight.
    """

    def __init__(
        self, width: int, epsilon: float, *, bias: bool = False, weight: bool = True
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.empty(width)) if weight else None
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def forward(self, states: Tensor) -> Tensor:
        """Of the same shape."""
        normed = torch.rms_norm(states, states.shape[-1:], self.weight, self.epsilon)
        return normed if self.bias is None else normed + self.bias


_NO_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")) | {"vocab_size": 1}


class Layers(nn.ModuleList):
    """Decoder layers that write to a cache, or attend to what they are given.

    Args:
        body: what they are.
        wide: the first attention reads token and state side by side; its norms are the head's.

    Attributes:
        packed: the same layers with joined projections, which decoding runs; none before `pack`,
            and none of layers that are not of the Llama family.
    """

    def __init__(self, body: Body, wide: bool) -> None:
        import transformers

        settings: Mapping[str, Any] = {**body.config, "num_hidden_layers": body.layers}
        config = transformers.AutoConfig.for_model(**{**settings, **_NO_TOKENS})
        config._attn_implementation = ATTENTION_NAME
        model: Any = transformers.AutoModel.from_config(config)
        super().__init__(model.layers)
        self.body, self.wide = body, wide
        self.packed: tuple[RotaryLayer, ...] = ()
        attention: Any = model.layers[0].self_attn
        self.head_dim: int = attention.head_dim
        self.kv_heads: int = attention.k_proj.out_features // self.head_dim
        self.groups: int = attention.q_proj.out_features // self.head_dim // self.kv_heads
        self.windows = windows_of(config, body.layers)
        named = signature(type(attention).forward).parameters
        self.store = "cache" if "cache" in named else "past_key_values"  # before transformers 5.20
        self.rotary = (model.rotary_emb,)  # in a tuple: its tables are no weights
        if wide:
            for name in ("q_proj", "k_proj", "v_proj"):
                narrow = getattr(attention, name)
                doubled = nn.Linear(
                    2 * narrow.in_features, narrow.out_features, bias=narrow.bias is not None
                )
                setattr(attention, name, doubled)
        for number, layer in enumerate(self):
            if number == 0 and (wide or not body.input_norm):
                del layer.input_layernorm
            if body.two_states:
                mlp: Any = layer.mlp
                inner, width = mlp.down_proj.in_features, mlp.down_proj.out_features
                mlp.down_proj = nn.Linear(inner, 2 * width, bias=False)
            if not body.mlp:
                del layer.mlp, layer.post_attention_layernorm

    def pack(self) -> None:
        """Join projections for decoding; from now on weights do not change."""
        rotary = FAMILIES.get(str(self.body.config.get("model_type"))) is RotaryFamily
        if rotary and self.body.mlp and not self.body.two_states:
            layers = [RotaryLayer(layer, n, shared=True) for n, layer in enumerate(self)]
            self.packed = tuple(layers)

    def packs(self, writer: Any) -> bool:
        """Whether a pass with such a writer runs joined projections: those of decoding do."""
        return bool(self.packed) and isinstance(writer, CacheWriter)

    def angles(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines `[B, T, head_dim]`, in the type of the states."""
        rotary = self.rotary[0]
        if rotary.inv_freq.device != states.device:
            rotary.to(states.device)
        return angles_of(rotary)(states, positions)

    def attend(
        self,
        number: int,
        given: Tensor,
        residual: Tensor,
        mask: LayerMask,
        angles: tuple[Tensor, Tensor],
        writer: Any,
    ) -> Tensor:
        """One layer behind its first norm: `given` is attended from, `residual` is added to."""
        if self.packs(writer):
            cos, sin = for_rotation(*angles)
            return self.packed[number].behind_norm(given, residual, mask, cos, sin, writer)
        layer: Any = self[number]
        mixed, _ = layer.self_attn(
            given, position_embeddings=angles, attention_mask=mask, **{self.store: writer}
        )
        states: Tensor = residual + mixed
        if self.body.mlp:
            added = layer.mlp(layer.post_attention_layernorm(states))
            states = (states.repeat(1, 1, 2) if self.body.two_states else states) + added
        return states
