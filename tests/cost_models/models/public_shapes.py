"""Shapes of public models, from their published config.json."""

from __future__ import annotations

from typing import Any

from specplan.cost_models.models.model_shape import ModelShape


def llama(
    hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocab: int
) -> dict[str, Any]:
    """A Llama-style config."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    }


CONFIGS = {
    "llama-2-7b": llama(4096, 32, 32, 32, 11008, 32000),
    "llama-3-8b": llama(4096, 32, 32, 8, 14336, 128256),
    "mistral-7b": llama(4096, 32, 32, 8, 14336, 32000)
    | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
    "qwen2-7b": llama(3584, 28, 28, 4, 18944, 152064)
    | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "llama-2-70b": llama(8192, 80, 64, 8, 28672, 32000),
    "llama-3-70b": llama(8192, 80, 64, 8, 28672, 128256),
    "qwen2-72b": llama(8192, 80, 64, 8, 29568, 152064)
    | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
}


def shape(name: str, dtype: str | None = None) -> ModelShape:
    """One of `CONFIGS`."""
    return ModelShape.from_config(CONFIGS[name], name=name, dtype=dtype)
