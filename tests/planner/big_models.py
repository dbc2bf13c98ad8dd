"""Configs of large public models without weights, enough to plan for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LLAMA_70B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""meta-llama/Llama-3.1-70B."""
EAGLE3_70B = LLAMA_70B | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "draft_vocab_size": 32000,
    "target_hidden_size": 8192,
}
"""An EAGLE-3 head for it, as yuhuili/EAGLE3-LLaMA3.3-Instruct-70B."""

FALCON_H1_34B: dict[str, Any] = {
    "architectures": ["FalconH1ForCausalLM"],
    "model_type": "falcon_h1",
    "hidden_size": 5120,
    "intermediate_size": 21504,
    "num_hidden_layers": 72,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "mamba_d_ssm": 4096,
    "mamba_n_heads": 32,
    "mamba_d_head": 128,
    "mamba_d_state": 256,
    "mamba_n_groups": 2,
    "max_position_embeddings": 262144,
    "vocab_size": 261120,
    "torch_dtype": "bfloat16",
}
"""tiiuae/Falcon-H1-34B-Instruct."""
FALCON_H1_1B = FALCON_H1_34B | {
    "hidden_size": 2048,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "mamba_d_ssm": 3072,
    "mamba_n_heads": 48,
    "mamba_d_head": 64,
    "mamba_n_groups": 1,
}
"""A draft model of the sizes of tiiuae/Falcon-H1-1.5B-Instruct, with the large one's vocabulary."""


def write_hybrids(folder: Path) -> Path:
    """A hybrid target and its draft model as `target` and `draft` in a folder."""
    for name, config in (("target", FALCON_H1_34B), ("draft", FALCON_H1_1B)):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))
    return folder


def write_70b(folder: Path) -> Path:
    """The target and its head as `target` and `eagle` in a folder."""
    for name, config in (("target", LLAMA_70B), ("eagle", EAGLE3_70B)):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))
    return folder
