"""Families of Llama's kind: rotary positions, RMS norms, gated MLPs."""

from __future__ import annotations

from specplan.cost_models.architectures.config import Config
from specplan.cost_models.architectures.shared import (
    decoder,
    gated_mlp,
    grouped_attention,
    windows,
)
from specplan.cost_models.layers import Decoder


def llama(config: Config) -> Decoder:
    """Llama (arXiv 2302.13971, 2407.21783)."""
    bias = config.flag("attention_bias")
    attention = grouped_attention(config, input_bias=bias, output_bias=bias)
    return decoder(config, attention, gated_mlp(config, config.flag("mlp_bias")))


def mistral(config: Config) -> Decoder:
    """Mistral: one window for all layers, or none (arXiv 2310.06825)."""
    window = config.size("sliding_window") if config.get("sliding_window") else None
    reaches = (window,) * config.size("num_hidden_layers")
    return decoder(config, grouped_attention(config), gated_mlp(config), reaches=reaches)


def qwen2(config: Config) -> Decoder:
    """Qwen2 and 2.5: biases on queries, keys and values (arXiv 2407.10671)."""
    attention = grouped_attention(config, input_bias=True)
    return decoder(config, attention, gated_mlp(config), reaches=qwen_windows(config))


def qwen3(config: Config) -> Decoder:
    """Qwen3: norms over each head's queries and keys (arXiv 2505.09388)."""
    bias = config.flag("attention_bias")
    head_dim = config.size("head_dim", default=128)
    attention = grouped_attention(
        config,
        head_dim=head_dim,
        input_bias=bias,
        output_bias=bias,
        norm_parameters=2 * head_dim,
    )
    return decoder(config, attention, gated_mlp(config), reaches=qwen_windows(config))


def qwen_windows(config: Config) -> tuple[int | None, ...]:
    """Qwen's windows count only with `use_sliding_window`, from layer `max_window_layers` on."""
    count = config.size("num_hidden_layers")
    if not config.flag("use_sliding_window") or not config.get("sliding_window"):
        return (None,) * count
    first = config.get("max_window_layers", count)
    return windows(
        config,
        ["full_attention" if i < first else "sliding_attention" for i in range(count)],
    )
