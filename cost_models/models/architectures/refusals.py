"""Why a model is not priced: in words, never as a wrong price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.layers import Decoder, ExpertMlp, LatentAttention

_RECURRENT_WORDS = (
    "mamba",
    "ssm",
    "rwkv",
    "recurrent",
    "retnet",
    "jamba",
    "zamba",
    "bamba",
    "xlstm",
    "linear",
    "lightning",
    "conv",
    "nemotron_h",
    "falcon_h1",
    "qwen3_next",
    "hybrid",
    "lfm2",
)
"""Parts of a model type, layer type or class that mean recurrent state instead of a cache."""

RECURRENT_FAMILIES = frozenset({"falcon_h1", "mamba2", "qwen3_next"})
"""Families with recurrent state that are priced, and that `eager` runs."""

_ENCODER_DECODERS = frozenset(
    {"bart", "marian", "mbart", "mt5", "pegasus", "t5", "umt5", "whisper"}
)
"""Model types that are encoder-decoders, whose config.json need not say so."""

_STATE_KEYS = (
    "ssm_state_size",
    "state_size",
    "ssm_cfg",
    "linear_num_value_heads",
    "mamba_d_state",
    "layers_block_type",
)
_SPARSE_KEYS = ("index_topk", "index_n_heads", "sparse_attention_config")


def refusal(outer: Config, inner: Config, classes: Sequence[str]) -> str:
    """The reason, or an empty string where there is none.

    Args:
        outer: the whole config.
        inner: the decoder's part of it, which may be the same.
        classes: class names that are priced; empty where the family is not known.
    """
    text = outer.get("text_config")
    nested = (Config(text, outer.where),) if isinstance(text, Mapping) and text else ()
    for config in (outer, inner, *nested):
        reason = _structure(config)
        if reason:
            return reason
    if not classes:
        kind = "a mixture of experts of " if _experts(inner) else ""
        return f"{kind}an unknown architecture"
    named = list(outer.get("architectures", []))
    if named and not set(named) & set(classes):
        return f"class {named[0]}"
    if inner.family != outer.family and outer.get("text_config") and not inner.get("hidden_size"):
        return "a text_config without sizes"
    return ""


def overlooked(inner: Config, decoder: Decoder) -> str:
    """What a config states that its family does not have; an empty string for nothing."""
    routed = any(isinstance(layer.mlp, ExpertMlp) for layer in decoder.layers)
    if _experts(inner) and not routed:
        return "a mixture of experts"
    latent = any(isinstance(layer.attention, LatentAttention) for layer in decoder.layers)
    if inner.get("kv_lora_rank") and not latent:
        return "latent attention (MLA)"
    return ""


def _structure(config: Config) -> str:
    stated = config.flag("is_encoder_decoder") or config.flag("add_cross_attention")
    if stated or config.family in _ENCODER_DECODERS:
        return "an encoder-decoder"
    recurrent = recurrent_state(config)
    if recurrent and config.family not in RECURRENT_FAMILIES:
        return f"recurrent state: {recurrent}"
    sparse = [key for key in _SPARSE_KEYS if config.get(key)]
    if sparse:
        return f"sparse attention: {sparse[0]}"
    return ""


def recurrent_state(config: Config) -> str:
    """The model type, layer type, class or key that means recurrent state; empty for none."""
    named = [config.family, *config.get("layer_types", []), *config.get("architectures", [])]
    kinds = [str(name) for name in (*named, *config.get("layers_block_type", []))]
    words = [kind for kind in kinds if any(word in kind.lower() for word in _RECURRENT_WORDS)]
    return next(iter([*words, *(key for key in _STATE_KEYS if config.get(key))]), "")


def _experts(config: Config) -> bool:
    keys = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    return any(config.get(key, 0) > 1 for key in keys)
