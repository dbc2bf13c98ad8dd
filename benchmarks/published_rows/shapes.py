"""Shapes of the models that published tables name, by the figures of their public config.json."""

from __future__ import annotations

import re

from specplan.cost_models.model_shape import ModelShape


def llama(
    name: str,
    hidden: int,
    layers: int,
    heads: int,
    intermediate: int,
    vocabulary: int = 32000,
    kv_heads: int | None = None,
) -> ModelShape:
    """A model of the Llama architecture in float16."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads or heads,
        "intermediate_size": intermediate,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    }
    return ModelShape.from_config(config, name=name)


def size_of(name: str) -> str:
    """The size in a model's name, e.g. `13B`; empty where there is none."""
    found = re.search(r"(\d+(?:\.\d+)?)b\b", name.lower())
    return f"{found.group(1)}B" if found else ""
