"""Tiny random checkpoints of every supported family, saved as ordinary folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

VOCABULARY = 61

_SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    # Far above the usual 0.02, so that attention is peaked and a wrong mask shows.
    "initializer_range": 0.3,
}
_GATED = _SHARED | {"intermediate_size": 48, "num_key_value_heads": 2}
_OPT = {**_SHARED, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.3}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

_MAMBA2: dict[str, Any] = {
    **{key: value for key, value in _SHARED.items() if "_heads" not in key and "max_" not in key},
    "state_size": 8,
    "n_groups": 2,
    "head_dim": 16,
    "num_heads": 4,
    "chunk_size": 8,
}
_QWEN3_NEXT: dict[str, Any] = {
    "initializer_range": 0.2,  # norms of queries and keys make it sharp as it is
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
}
_FALCON_H1: dict[str, Any] = {
    "mamba_d_ssm": 48,
    "mamba_n_heads": 6,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
    "embedding_multiplier": 1.5,
    "lm_head_multiplier": 0.5,
    "key_multiplier": 0.7,
    "attention_in_multiplier": 0.9,
    "attention_out_multiplier": 1.1,
    "ssm_in_multiplier": 1.2,
    "ssm_out_multiplier": 0.8,
    "ssm_multipliers": [1.1, 0.9, 1.2, 0.8, 1.3],
    "mlp_multipliers": [0.9, 1.2],
}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**_GATED),
    "llama_variants": lambda: transformers.LlamaConfig(
        **_GATED, attention_bias=True, mlp_bias=True, head_dim=16, rope_parameters=_LLAMA3
    ),
    "mistral": lambda: transformers.MistralConfig(**_GATED, sliding_window=5),
    "mistral_full": lambda: transformers.MistralConfig(**_GATED, sliding_window=None),
    "qwen2": lambda: transformers.Qwen2Config(**_GATED, tie_word_embeddings=True),
    "qwen2_windows": lambda: transformers.Qwen2Config(
        **_GATED, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "qwen3": lambda: transformers.Qwen3Config(**_GATED, head_dim=16),
    "qwen3_windows": lambda: transformers.Qwen3Config(
        **_GATED, head_dim=16, use_sliding_window=True, sliding_window=4, max_window_layers=2
    ),
    "gpt2": lambda: transformers.GPT2Config(**_SHARED),
    "gpt2_scaled": lambda: transformers.GPT2Config(**_SHARED, scale_attn_by_inverse_layer_idx=True),
    "opt": lambda: transformers.OPTConfig(**_OPT),
    "opt_projected": lambda: transformers.OPTConfig(**{**_OPT, "word_embed_proj_dim": 16}),
    "opt_post_norm": lambda: transformers.OPTConfig(**_OPT, do_layer_norm_before=False),
    "mamba2": lambda: transformers.Mamba2Config(**_MAMBA2),
    "falcon_h1": lambda: transformers.FalconH1Config(**_GATED, **_FALCON_H1),
    "qwen3_next": lambda: transformers.Qwen3NextConfig(**{**_GATED, **_QWEN3_NEXT}),
    "falcon_h1_normed": lambda: transformers.FalconH1Config(
        **_GATED, **_FALCON_H1, mamba_rms_norm=True, mamba_norm_before_gate=False
    ),
}


def save_tiny(name: str, folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Save the tiny model called `name` to `folder` in float32 and return the folder.

    Biases and norms are random too, so that leaving one out is noticed.
    """
    config = CONFIGS[name]()
    for key, value in changes.items():
        setattr(config, key, value)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key or "ln_" in key or key.endswith("bias"):
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder
