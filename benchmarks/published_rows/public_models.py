"""Models that published latency tables name, by the figures of their public config.json.

Source: config.json of each repository on huggingface.co, as published (meta-llama, mistralai,
codellama, internlm, Qwen, 01-ai, TinyLlama, togethercomputer), and `transformer_configs` of
gpt-fast and MagicDec, which agree; also lmsys, double7, JackFram and princeton-nlp.
"""

from __future__ import annotations

import re
from functools import cache

from specplan.cost_models.models.model_shape import ModelShape

_FIGURES: dict[str, tuple[int, int, int, int, int, int]] = {
    # hidden, layers, heads, KV heads, MLP, vocabulary
    "llama-2-7b": (4096, 32, 32, 32, 11008, 32000),
    "llama-2-13b": (5120, 40, 40, 40, 13824, 32000),
    "llama-2-70b": (8192, 80, 64, 8, 28672, 32000),
    "llama-3-8b": (4096, 32, 32, 8, 14336, 128256),
    "llama-3-70b": (8192, 80, 64, 8, 28672, 128256),
    "llama-3.2-1b": (2048, 16, 32, 8, 8192, 128256),
    "mistral-7b": (4096, 32, 32, 8, 14336, 32000),
    "codellama-34b": (8192, 48, 64, 8, 22016, 32000),
    "internlm-20b": (5120, 60, 40, 40, 13824, 103168),
    "internlm2-20b": (6144, 48, 48, 8, 16384, 92544),
    "qwen-72b": (8192, 80, 64, 64, 24576, 152064),
    "qwen2-7b": (3584, 28, 28, 4, 18944, 152064),
    "qwen2-72b": (8192, 80, 64, 8, 29568, 152064),
    "qwen2.5-0.5b": (896, 24, 14, 2, 4864, 151936),
    "qwen2.5-7b": (3584, 28, 28, 4, 18944, 152064),
    "qwen2.5-14b": (5120, 48, 40, 8, 13824, 152064),
    "qwen2.5-32b": (5120, 64, 40, 8, 27648, 152064),
    "qwen2.5-72b": (8192, 80, 64, 8, 29568, 152064),
    "qwen3-8b": (4096, 36, 32, 8, 12288, 151936),
    "qwen3-14b": (5120, 40, 40, 8, 17408, 151936),
    "qwen3-32b": (5120, 64, 64, 8, 25600, 151936),
    "yi-1.5-6b": (4096, 32, 32, 4, 11008, 64000),
    "yi-1.5-34b": (7168, 60, 56, 8, 20480, 64000),
    "tinyllama-1.1b": (2048, 22, 32, 4, 5632, 32000),
    "vicuna-7b": (4096, 32, 32, 32, 11008, 32000),
    "vicuna-13b": (5120, 40, 40, 40, 13824, 32000),
    "vicuna-33b": (6656, 60, 52, 52, 17920, 32000),
    "vicuna-68m": (768, 2, 12, 12, 3072, 32000),
    "llama-68m": (768, 2, 12, 12, 3072, 32000),
    "llama-160m": (768, 12, 12, 12, 3072, 32000),
    "sheared-llama-1.3b": (2048, 24, 16, 16, 5504, 32000),
}

_MIXTRAL = {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}

_ALIASES = (
    ("llama-3.1", "llama-3"),
    ("llama3.1", "llama-3"),
    ("llama3", "llama-3"),
    ("llama2", "llama-2"),
    ("qwen1.5-72b", "qwen-72b"),
    ("qwen2-", "qwen2-"),
)


@cache
def public_model(name: str) -> ModelShape | None:
    """The shape of a model as a table names it, in float16; None where it is not known.

    Hugging Face names, suffixes and quantisations are overlooked: `meta-llama/Llama-2-7b-hf`,
    `Llama2-7B-32K` and `Llama2-7B int4` are one shape.
    """
    text = name.lower().rsplit("/", 1)[-1].replace("_", "-")
    for alias, known in _ALIASES:
        text = text.replace(alias, known)
    if "mixtral-8x7b" in text:
        return ModelShape.from_config(_MIXTRAL, name=name)
    mentioned = [known for known in _FIGURES if known in text]
    if not mentioned:
        return None
    hidden, layers, heads, kv_heads, inner, vocabulary = _FIGURES[max(mentioned, key=len)]
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    }
    return ModelShape.from_config(config, name=name)


def known_model(name: str) -> ModelShape:
    """The shape of a model that is listed here."""
    shape = public_model(name)
    assert shape is not None, name
    return shape


def size_of(name: str) -> str:
    """The size in a model's name, e.g. `13B`; empty where there is none."""
    match = re.search(r"(\d+(?:\.\d+)?)b\b", name.lower())
    return f"{match.group(1)}B" if match else ""
