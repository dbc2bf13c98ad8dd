"""The Gemma families: wide heads, tied embeddings, and layers with windows in between."""

from __future__ import annotations

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.llama_like import every_other
from specplan.cost_models.models.architectures.shared import (
    decoder,
    gated_mlp,
    grouped_attention,
    windows,
)
from specplan.cost_models.models.layers import Decoder, GroupedAttention

_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
"""What the published text_config of Gemma 3 leaves to `Gemma3TextConfig`."""


def gemma(config: Config) -> Decoder:
    """Gemma (arXiv 2403.08295)."""
    return decoder(config, _attention(config), gated_mlp(config), tied=True)


def gemma2(config: Config) -> Decoder:
    """Gemma 2 (arXiv 2408.00118): four norms per layer, every other layer has a window."""
    reaches = windows(config, every_other(config, 2))
    return decoder(
        config, _attention(config), gated_mlp(config), reaches=reaches, norms=4, tied=True
    )


def gemma3(config: Config) -> Decoder:
    """Gemma 3 (arXiv 2503.19786): five windowed layers to one with full attention."""
    config = Config({**_GEMMA3_DEFAULTS, **config.values}, config.where)
    every = config.size("sliding_window_pattern", default=6)
    attention = _attention(config, norm_parameters=2 * config.size("head_dim"))
    reaches = windows(config, every_other(config, every))
    return decoder(config, attention, gated_mlp(config), reaches=reaches, norms=4, tied=True)


def _attention(config: Config, norm_parameters: int = 0) -> GroupedAttention:
    bias = config.flag("attention_bias")
    return grouped_attention(
        config,
        head_dim=config.get("head_dim", 256),
        input_bias=bias,
        output_bias=bias,
        norm_parameters=norm_parameters,
    )
