"""A GGUF file's metadata in the names of config.json, and its tensors by part.

Keys and tensor names are those of `gguf` 0.19 (constants.py) and of llama.cpp's converter. What
the metadata leave open (biases, a tied head) is seen in the tensors; that they hold exactly the
parameters which the config implies is checked by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specplan.cost_models.models.files.gguf_headers import GgufModel
from specplan.cost_models.models.number_formats import (
    RUN_FORMATS,
    NumberFormat,
    joined,
    number_format,
)
from specplan.ir.errors import MissingCapabilityError, UsageError

_FAMILIES = {
    "cohere2": "cohere2",
    "command-r": "cohere",
    "deepseek2": "deepseek_v3",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "glm4": "glm4",
    "gpt-oss": "gpt_oss",
    "gpt2": "gpt2",
    "gptneox": "gpt_neox",
    "granite": "granite",
    "llama": "llama",
    "llama4": "llama4_text",
    "olmo2": "olmo2",
    "olmoe": "olmoe",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "starcoder2": "starcoder2",
}
"""`general.architecture` by the family of config.json that has its structure."""
_RUN = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Families that run from such files."""

_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
}
_ABSENT = re.compile(r"^(rope_|.*\.exp_probs_b\.|.*\.attn_rot_embd|.*\.nextn\.)")
_PARTS = (
    ("other", re.compile(r"norm|\.bias$|attn_sinks|position_embd")),
    ("embedding", re.compile(r"^token_embd\.")),
    ("head", re.compile(r"^output\.")),
    ("router", re.compile(r"\.ffn_gate_inp")),
    ("shared_experts", re.compile(r"_shexp\.")),
    ("experts", re.compile(r"_exps\.")),
    ("attention", re.compile(r"\.attn_")),
    ("mlp", re.compile(r"\.ffn_")),
)


def config_of_gguf(model: GgufModel) -> dict[str, Any]:
    """The config.json that a GGUF model would have.

    Raises:
        MissingCapabilityError: its architecture is not priced; names it.
        UsageError: a size differs between layers, or there is no embedding.
    """
    where = str(model.files[0])
    architecture = str(model.metadata.get("general.architecture", "unnamed"))
    if architecture not in _FAMILIES:
        raise MissingCapabilityError(
            f"GGUF architecture {architecture!r} cannot be priced yet",
            where=where,
            remedy=f"Use one of {', '.join(sorted(_FAMILIES))}.",
        )
    config: dict[str, Any] = {"model_type": _FAMILIES[architecture]}
    for key, name in _SIZES.items():
        value = model.metadata.get(f"{architecture}.{name}")
        if isinstance(value, tuple) and name.endswith("_pattern"):
            kinds = ("full_attention", "sliding_attention")
            config["layer_types"] = [kinds[bool(sliding)] for sliding in value]
            continue
        if isinstance(value, tuple):
            if len(set(value)) != 1:
                raise UsageError(f"{name} differs between layers", where=where)
            value = value[0]
        if value is not None:
            config[key] = value
    if "token_embd.weight" not in model.tensors:
        raise UsageError("there is no token_embd.weight", where=where)
    config["vocab_size"] = model.tensors["token_embd.weight"].dimensions[-1]
    config["tie_word_embeddings"] = "output.weight" not in model.tensors
    config |= _biases(model)
    special = _SPECIAL.get(config["model_type"])
    return config | (special(config, architecture, model) if special else {})


def formats_by_part(model: GgufModel) -> dict[str, dict[NumberFormat, int]]:
    """Elements of each type, part by part of `WeightFormats`."""
    parts: dict[str, dict[NumberFormat, int]] = {}
    for name, tensor in model.tensors.items():
        if _ABSENT.match(name):
            continue
        part = next((part for part, words in _PARTS if words.search(name)), "other")
        counts = parts.setdefault(part, {})
        form = number_format(tensor.type)
        counts[form] = counts.get(form, 0) + tensor.elements
    return parts


def check_gguf_runs(model: GgufModel) -> dict[str, Any]:
    """The config.json of a GGUF model, if it runs here; errors as of `config_of_gguf`.

    Raises:
        MissingCapabilityError: its architecture does not run.
    """
    config = config_of_gguf(model)
    if config["model_type"] not in _RUN:
        raise MissingCapabilityError(
            f"GGUF files of architecture {model.metadata['general.architecture']!r} do not run",
            where=str(model.files[0]),
            remedy="Llama, Mistral, Qwen2 and Qwen3 run from GGUF files; or name a checkpoint "
            "folder.",
        )
    return config


def stored_dtype(counts: Mapping[str, Mapping[NumberFormat, int]]) -> str:
    """The number type of matrices that are not quantised; float16 for others."""
    plain = {"F32": "float32", "BF16": "bfloat16"}
    return plain.get(joined(counts["attention"]).name, "float16")


def is_plain(model: GgufModel) -> bool:
    """Whether no tensor of a model is quantised."""
    return {tensor.type for tensor in model.tensors.values()} <= {"F32", "F16", "BF16"}


def run_dtype(model: GgufModel) -> str:
    """The number type that a GGUF model runs in: as stored, or float32 where some are quantised."""
    return stored_dtype(formats_by_part(model)) if is_plain(model) else "float32"


def formats_as_run(
    counts: Mapping[str, Mapping[NumberFormat, int]], dtype: str
) -> dict[str, dict[NumberFormat, int]]:
    """Elements of each type as they are in memory here: `RUN_FORMATS`, or else a number type.

    The embeddings are a table of numbers.
    """
    own = number_format(dtype)
    parts: dict[str, dict[NumberFormat, int]] = {}
    for part, forms in counts.items():
        made = parts.setdefault(part, {})
        for form, count in forms.items():
            stays = form.name in RUN_FORMATS and part != "embedding"
            made[form if stays else own] = made.get(form if stays else own, 0) + count
    return parts


def _biases(model: GgufModel) -> dict[str, bool]:
    def has(*names: str) -> bool:
        return any(f"blk.0.{name}.bias" in model.tensors for name in names)

    inputs, up = has("attn_q", "attn_qkv"), has("ffn_up", "ffn_up_exps")
    return {
        "attention_bias": inputs,
        "qkv_bias": inputs,
        "attention_out_bias": has("attn_output"),
        "mlp_bias": up,
        "use_bias": inputs,
        "bias": inputs,
        "use_qk_norm": "blk.0.attn_q_norm.weight" in model.tensors,
    }


def _llama(config: Mapping[str, Any], _: str, model: GgufModel) -> dict[str, Any]:
    """llama.cpp calls Mistral and Mixtral llama, too."""
    if config.get("num_local_experts", 0) > 1:
        return {"model_type": "mixtral"}
    return {"model_type": "mistral"} if config.get("sliding_window") else {}


def _gpt2(config: Mapping[str, Any], _: str, model: GgufModel) -> dict[str, Any]:
    return {
        "n_embd": config.get("hidden_size"),
        "n_layer": config.get("num_hidden_layers"),
        "n_head": config.get("num_attention_heads"),
        "n_inner": config.get("intermediate_size"),
        "n_positions": config.get("max_position_embeddings"),
    }


def _falcon(config: Mapping[str, Any], _: str, model: GgufModel) -> dict[str, Any]:
    norms = 2 if "blk.0.attn_norm_2.weight" in model.tensors else 1
    return {
        "new_decoder_architecture": True,
        "num_kv_heads": config.get("num_key_value_heads"),
        "ffn_hidden_size": config.get("intermediate_size"),
        "num_ln_in_parallel_attn": norms,
    }


def _deepseek(config: Mapping[str, Any], architecture: str, model: GgufModel) -> dict[str, Any]:
    """Newer files keep the widths of heads under `_mla` and the latent's under `key_length`."""

    def width(name: str) -> int:
        prefix = f"{architecture}.attention.{name}"
        width_of_key: int = model.metadata.get(f"{prefix}_mla", model.metadata.get(prefix, 0))
        return width_of_key

    rope = config.get("qk_rope_head_dim", 0)
    return {
        "num_key_value_heads": config.get("num_attention_heads"),
        "qk_nope_head_dim": width("key_length") - rope,
        "v_head_dim": width("value_length"),
    }


def _llama4(config: Mapping[str, Any], _: str, model: GgufModel) -> dict[str, Any]:
    return {
        "intermediate_size": config.get("moe_intermediate_size"),
        "intermediate_size_mlp": config.get("intermediate_size"),
        "attention_chunk_size": 8192,  # fixed in llama.cpp, and in all published models
    }


def _expert_width(config: Mapping[str, Any], _: str, model: GgufModel) -> dict[str, Any]:
    width = config.get("moe_intermediate_size") or config.get("intermediate_size")
    return {"intermediate_size": width}


_SPECIAL = {
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gpt2": _gpt2,
    "gpt_oss": _expert_width,
    "llama": _llama,
    "llama4_text": _llama4,
    "olmoe": _expert_width,
}
