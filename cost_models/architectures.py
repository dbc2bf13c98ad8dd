"""config.json of a dense decoder, family by family, as one set of names.

Keys and defaults are those of Hugging Face transformers 5 (one file per family under
`transformers/models/<family>/configuration_<family>.py`); no transformers is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specplan.ir.errors import MissingCapabilityError, UsageError

Fields = dict[str, Any]
SUPPORTED_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "opt": "OPTForCausalLM",
}
_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_STATE_KEYS = ("ssm_state_size", "state_size", "linear_num_value_heads", "layers_block_type")


def fields_of_config(config: Mapping[str, Any], where: str) -> Fields:
    """The shape that a config.json states.

    Args:
        config: the parsed config.json.
        where: what to name in errors, e.g. the folder.

    Returns:
        Keyword arguments of `ModelShape`, without its name, dtype, bytes and identity.

    Raises:
        MissingCapabilityError: for architectures that are not priced; names them.
        UsageError: when a key that the family needs is missing or is no number.
    """
    _refuse_unpriced(config, where)
    family = config["model_type"]
    try:
        fields = _READERS[family](config)
        _check(fields, where)
    except KeyError as error:
        raise UsageError(
            f"config.json of a {family} model lacks the key {error.args[0]!r}",
            where=where,
            remedy="Take the config.json that came with the checkpoint.",
        ) from error
    except TypeError as error:
        raise UsageError(
            f"config.json has a value of the wrong kind ({error})", where=where
        ) from error
    return {"architecture": family, **fields}


def _refuse_unpriced(config: Mapping[str, Any], where: str) -> None:
    inner = {**config, **(config.get("text_config") or {})}
    family = str(config.get("model_type", "unnamed"))
    classes = list(config.get("architectures") or [])
    reason = ""
    if any((inner.get(key) or 0) > 1 for key in _EXPERT_KEYS):
        reason = "a mixture of experts"
        if inner.get("kv_lora_rank"):
            reason += " with latent attention (MLA)"
    elif inner.get("kv_lora_rank"):
        reason = "latent attention (MLA)"
    elif any(inner.get(key) for key in _STATE_KEYS) or "linear_attention" in (
        inner.get("layer_types") or []
    ):
        reason = "recurrent state"
    elif config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unnamed")
        reason = f"quantised weights ({method})"
    elif family not in SUPPORTED_CLASSES:
        reason = "an unknown architecture"
    elif classes and SUPPORTED_CLASSES[family] not in classes:
        reason = f"class {classes[0]}"
    if reason:
        raise MissingCapabilityError(
            f"model type {family!r} ({reason}) cannot be priced yet",
            where=where,
            remedy=f"Use a dense model of type {', '.join(sorted(SUPPORTED_CLASSES))}.",
        )


def _check(fields: Fields, where: str) -> None:
    for key in (
        "hidden_size",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "max_positions",
    ):
        value = fields[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(
                f"config.json gives {value!r} for {key}, not a positive integer", where=where
            )
    if fields["num_heads"] % fields["num_kv_heads"]:
        raise UsageError(
            "the number of heads is no multiple of the number of KV heads", where=where
        )
    if len(fields["layer_windows"]) != fields["num_layers"]:
        raise UsageError("layer_types does not have one entry per layer", where=where)


def _llama_like(config: Mapping[str, Any]) -> Fields:
    heads = config["num_attention_heads"]
    layers = config["num_hidden_layers"]
    return {
        "hidden_size": config["hidden_size"],
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "intermediate_size": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "max_positions": config["max_position_embeddings"],
        "gated_mlp": True,
        "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
        "layer_windows": (None,) * layers,
        "query_key_value_bias": False,
        "output_bias": False,
        "mlp_bias": False,
        "query_key_norm": False,
        "parameters_per_norm": config["hidden_size"],
        "final_norm": True,
        "learned_positions": 0,
        "embedding_size": config["hidden_size"],
    }


def _llama(config: Mapping[str, Any]) -> Fields:
    bias = bool(config.get("attention_bias", False))
    return _llama_like(config) | {
        "query_key_value_bias": bias,
        "output_bias": bias,
        "mlp_bias": bool(config.get("mlp_bias", False)),
    }


def _mistral(config: Mapping[str, Any]) -> Fields:
    window = config.get("sliding_window")
    return _llama_like(config) | {"layer_windows": (window,) * config["num_hidden_layers"]}


def _qwen_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    layers = config["num_hidden_layers"]
    types = config.get("layer_types")
    if types is None:
        first = config.get("max_window_layers", layers)
        types = ["full_attention" if i < first else "sliding_attention" for i in range(layers)]
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _qwen2(config: Mapping[str, Any]) -> Fields:
    return _llama_like(config) | {
        "layer_windows": _qwen_windows(config),
        "query_key_value_bias": True,
    }


def _qwen3(config: Mapping[str, Any]) -> Fields:
    bias = bool(config.get("attention_bias", False))
    return _llama_like(config) | {
        "head_dim": config.get("head_dim") or 128,
        "layer_windows": _qwen_windows(config),
        "query_key_value_bias": bias,
        "output_bias": bias,
        "query_key_norm": True,
    }


def _gpt2(config: Mapping[str, Any]) -> Fields:
    width = config["n_embd"]
    heads = config["n_head"]
    return {
        "hidden_size": width,
        "num_layers": config["n_layer"],
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width // heads,
        "intermediate_size": config.get("n_inner") or 4 * width,
        "vocab_size": config["vocab_size"],
        "max_positions": config["n_positions"],
        "gated_mlp": False,
        "tied_embeddings": bool(config.get("tie_word_embeddings", True)),
        "layer_windows": (None,) * config["n_layer"],
        "query_key_value_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "query_key_norm": False,
        "parameters_per_norm": 2 * width,
        "final_norm": True,
        "learned_positions": config["n_positions"],
        "embedding_size": width,
    }


def _opt(config: Mapping[str, Any]) -> Fields:
    width = config["hidden_size"]
    heads = config["num_attention_heads"]
    bias = bool(config.get("enable_bias", True))
    before = bool(config.get("do_layer_norm_before", True))
    return {
        "hidden_size": width,
        "num_layers": config["num_hidden_layers"],
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width // heads,
        "intermediate_size": config["ffn_dim"],
        "vocab_size": config["vocab_size"],
        "max_positions": config["max_position_embeddings"],
        "gated_mlp": False,
        "tied_embeddings": bool(config.get("tie_word_embeddings", True)),
        "layer_windows": (None,) * config["num_hidden_layers"],
        "query_key_value_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
        "query_key_norm": False,
        "parameters_per_norm": 2 * width * bool(config.get("layer_norm_elementwise_affine", True)),
        "final_norm": before and not config.get("_remove_final_layer_norm", False),
        # the table has two more rows than positions (OPTLearnedPositionalEmbedding.offset)
        "learned_positions": config["max_position_embeddings"] + 2,
        "embedding_size": config.get("word_embed_proj_dim") or width,
    }


_READERS: dict[str, Callable[[Mapping[str, Any]], Fields]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gpt2": _gpt2,
    "opt": _opt,
}
