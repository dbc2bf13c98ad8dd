"""Families of Llama's kind: rotary positions, RMS norms, gated MLPs."""

from __future__ import annotations

from dataclasses import replace

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.architectures.shared import (
    decoder,
    gated_mlp,
    grouped_attention,
    windows,
)
from specplan.cost_models.models.layers import Decoder


def llama(config: Config) -> Decoder:
    """Llama (arXiv 2302.13971, 2407.21783)."""
    attention = grouped_attention(config, config.flag("attention_bias"))
    return decoder(config, attention, gated_mlp(config, config.flag("mlp_bias")))


def mistral(config: Config) -> Decoder:
    """Mistral: one window for all layers, or none (arXiv 2310.06825)."""
    attention = grouped_attention(config)
    return decoder(config, attention, gated_mlp(config), reaches=one_window(config))


def ministral(config: Config) -> Decoder:
    """Ministral: windows by layer, everywhere unless the config says otherwise."""
    kind = "sliding_attention" if config.get("sliding_window") else "full_attention"
    reaches = windows(config, [kind] * config.size("num_hidden_layers"))
    return decoder(config, grouped_attention(config), gated_mlp(config), reaches=reaches)


def qwen2(config: Config) -> Decoder:
    """Qwen2 and 2.5: biases on queries, keys and values (arXiv 2407.10671)."""
    attention = grouped_attention(config, input_bias=True)
    return decoder(config, attention, gated_mlp(config), reaches=qwen_windows(config))


def qwen3(config: Config) -> Decoder:
    """Qwen3: norms over each head's queries and keys (arXiv 2505.09388)."""
    head_dim = config.size("head_dim", default=128)
    attention = grouped_attention(
        config, config.flag("attention_bias"), head_dim, norm_parameters=2 * head_dim
    )
    return decoder(config, attention, gated_mlp(config), reaches=qwen_windows(config))


def granite(config: Config) -> Decoder:
    """Granite 3: Llama with multipliers, which cost nothing."""
    return llama(config)


def phi3(config: Config) -> Decoder:
    """Phi-3 and Phi-4 (arXiv 2404.14219): fused projections, one window for all layers."""
    return mistral(config)


def smollm3(config: Config) -> Decoder:
    """SmolLM3: layers without rotary positions may have windows."""
    count = config.size("num_hidden_layers")
    types = None
    if config.flag("use_sliding_window") and config.get("sliding_window"):
        every = config.size("no_rope_layer_interval", default=4)
        default = tuple((i + 1) % every for i in range(count))
        rotary = config.per_layer("no_rope_layers", count) or default
        types = ["full_attention" if has else "sliding_attention" for has in rotary]
    return decoder(
        config,
        grouped_attention(config, config.flag("attention_bias")),
        gated_mlp(config, config.flag("mlp_bias")),
        reaches=windows(config, types),
        tied=True,
    )


def seed_oss(config: Config) -> Decoder:
    """Seed-OSS: biases on queries, keys and values; an explicit head width."""
    attention = grouped_attention(
        config,
        head_dim=config.get("head_dim", 128),
        input_bias=config.flag("attention_bias", True),
        output_bias=config.flag("attention_out_bias"),
    )
    return decoder(config, attention, gated_mlp(config, config.flag("mlp_bias")))


def glm4(config: Config) -> Decoder:
    """GLM-4-0414: four norms per layer, biases on queries, keys and values."""
    attention = grouped_attention(
        config,
        head_dim=config.get("head_dim", 128),
        input_bias=config.flag("attention_bias", True),
    )
    return decoder(config, attention, gated_mlp(config), norms=4)


def olmo2(config: Config) -> Decoder:
    """OLMo 2 and 3 (arXiv 2501.00656): norms over all queries and all keys."""
    plain = grouped_attention(config, config.flag("attention_bias"))
    attention = replace(plain, norm_parameters=plain.query_width + plain.key_width)
    types = None
    if config.family == "olmo3":
        types = every_other(config, 4)
    return decoder(config, attention, gated_mlp(config), reaches=windows(config, types))


def cohere(config: Config) -> Decoder:
    """Command R and R+: one norm per layer, attention and MLP side by side."""
    plain = grouped_attention(config, config.flag("attention_bias"))
    norms = (plain.query_width + plain.key_width) * config.flag("use_qk_norm")
    attention = replace(plain, norm_parameters=norms)
    return decoder(config, attention, gated_mlp(config), norms=1, tied=True)


def cohere2(config: Config) -> Decoder:
    """Command A and R7B: three windowed layers to one with full attention."""
    attention = grouped_attention(config, config.flag("attention_bias"))
    every = config.size("sliding_window_pattern", default=4)
    reaches = windows(config, every_other(config, every))
    return decoder(config, attention, gated_mlp(config), reaches=reaches, norms=1, tied=True)


def every_other(config: Config, every: int) -> list[str]:
    """Layer types where each `every`-th layer has full attention and the others windows."""
    return [
        "sliding_attention" if (i + 1) % every else "full_attention"
        for i in range(config.size("num_hidden_layers"))
    ]


def one_window(config: Config) -> tuple[int | None, ...]:
    """The same window in every layer, or none."""
    window = config.size("sliding_window") if config.get("sliding_window") else None
    return (window,) * config.size("num_hidden_layers")


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
