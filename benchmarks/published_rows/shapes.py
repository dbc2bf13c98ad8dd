"""Shapes of the models that published tables name, by the figures of their public config.json."""

from __future__ import annotations

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
