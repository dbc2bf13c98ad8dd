"""Tiny configs of every priced family, for stock transformers to build."""

from __future__ import annotations

from typing import Any

CANONICAL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 101,
    "max_position_embeddings": 64,
}
_MOE = CANONICAL | {"num_experts_per_tok": 2, "moe_intermediate_size": 20}
_LATENT = CANONICAL | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 10,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101, "n_positions": 64}
_OPT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 48,
    "vocab_size": 101,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 32,
}
_FALCON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 101,
}
_MAMBA2 = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "vocab_size": 101,
    "state_size": 8,
    "n_groups": 2,
    "head_dim": 16,
    "num_heads": 4,
}
_FALCON_H1 = CANONICAL | {
    "mamba_d_ssm": 48,
    "mamba_n_heads": 6,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
}
_QWEN3_NEXT = _MOE | {
    "head_dim": 16,
    "num_experts": 6,
    "shared_expert_intermediate_size": 28,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
_BIAS = {"attention_bias": True}
_PHI_PADDING = {"pad_token_id": 0}

TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", CANONICAL),
    "llama-tied-biased": (
        "llama",
        CANONICAL | _BIAS | {"mlp_bias": True, "tie_word_embeddings": True, "head_dim": 16},
    ),
    "mistral": ("mistral", CANONICAL | {"sliding_window": 8, "head_dim": 16}),
    "ministral": ("ministral", CANONICAL | {"sliding_window": 8, "head_dim": 8}),
    "ministral3": ("ministral3", CANONICAL | {"head_dim": 16}),
    "qwen2": (
        "qwen2",
        CANONICAL | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
    ),
    "qwen3": ("qwen3", CANONICAL | _BIAS | {"head_dim": 16}),
    "gemma": ("gemma", CANONICAL | {"head_dim": 16}),
    "gemma-biased": ("gemma", CANONICAL | _BIAS | {"head_dim": 16}),
    "gemma2": ("gemma2", CANONICAL | {"head_dim": 16, "sliding_window": 8}),
    "gemma3_text": ("gemma3_text", CANONICAL | {"head_dim": 16, "num_hidden_layers": 7}),
    "granite": ("granite", CANONICAL | _BIAS | {"mlp_bias": True}),
    "phi3": ("phi3", CANONICAL | _PHI_PADDING | {"sliding_window": 9}),
    "cohere": ("cohere", CANONICAL | {"use_qk_norm": True}),
    "cohere-plain": ("cohere", CANONICAL | _BIAS),
    "cohere2": ("cohere2", CANONICAL | {"sliding_window": 8}),
    "smollm3": ("smollm3", CANONICAL | _PHI_PADDING | {"mlp_bias": True}),
    "smollm3-windows": (
        "smollm3",
        CANONICAL | _PHI_PADDING | {"use_sliding_window": True, "sliding_window": 8},
    ),
    "seed_oss": ("seed_oss", CANONICAL | {"head_dim": 16}),
    "glm4": ("glm4", CANONICAL | _PHI_PADDING | {"head_dim": 16}),
    "olmo2": ("olmo2", CANONICAL),
    "olmo3": ("olmo3", CANONICAL | {"sliding_window": 8}),
    "starcoder2": ("starcoder2", CANONICAL | {"sliding_window": 8}),
    "starcoder2-no-bias": ("starcoder2", CANONICAL | {"use_bias": False}),
    "gpt2": ("gpt2", _GPT2),
    "gpt2-inner": ("gpt2", _GPT2 | {"n_inner": 40, "tie_word_embeddings": False}),
    "opt": ("opt", _OPT),
    "opt-350m-like": ("opt", _OPT | {"word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "opt-no-bias": ("opt", _OPT | {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    "gpt_neox": ("gpt_neox", CANONICAL),
    "gpt_neox-no-bias": ("gpt_neox", CANONICAL | {"attention_bias": False}),
    "mamba2": ("mamba2", _MAMBA2),
    "mamba2-biased": ("mamba2", _MAMBA2 | {"use_bias": True, "tie_word_embeddings": True}),
    "falcon_h1": ("falcon_h1", _FALCON_H1),
    "falcon_h1-biased": (
        "falcon_h1",
        _FALCON_H1
        | _BIAS
        | {"mlp_bias": True, "mamba_proj_bias": True, "projectors_bias": True}
        | {"mamba_rms_norm": True, "mamba_conv_bias": False},
    ),
    "qwen3_next": ("qwen3_next", _QWEN3_NEXT),
    "qwen3_next-types": (
        "qwen3_next",
        _QWEN3_NEXT
        | _BIAS
        | {"mlp_only_layers": [1]}
        | {"layer_types": ["full_attention", *["linear_attention"] * 3]},
    ),
    "falcon-7b-like": ("falcon", _FALCON),
    "falcon-40b-like": ("falcon", _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-rw-like": (
        "falcon",
        _FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    ),
    "mixtral": (
        "mixtral",
        CANONICAL | {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 8},
    ),
    "minimax_m2": (
        "minimax_m2",
        CANONICAL | {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 16},
    ),
    "phimoe": (
        "phimoe",
        CANONICAL
        | {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 8}
        | {"attention_bias": True},
    ),
    "olmoe": ("olmoe", CANONICAL | {"num_experts": 6, "num_experts_per_tok": 2}),
    "qwen2_moe": (
        "qwen2_moe",
        _MOE | {"num_experts": 6, "shared_expert_intermediate_size": 28, "mlp_only_layers": [1]},
    ),
    "qwen2_moe-windows": (
        "qwen2_moe",
        _MOE
        | {"num_experts": 6, "shared_expert_intermediate_size": 28, "decoder_sparse_step": 2}
        | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
    ),
    "qwen3_moe": ("qwen3_moe", _MOE | {"num_experts": 6, "head_dim": 16, "mlp_only_layers": [0]}),
    "gpt_oss": (
        "gpt_oss",
        CANONICAL
        | {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8},
    ),
    "glm4_moe": (
        "glm4_moe",
        _MOE
        | {
            "n_routed_experts": 6,
            "n_shared_experts": 1,
            "head_dim": 16,
            "use_qk_norm": True,
            "pad_token_id": 0,
        }
        | {"attention_bias": True, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    ),
    "llama4_text": (
        "llama4_text",
        CANONICAL
        | {"intermediate_size_mlp": 60, "num_local_experts": 6, "interleave_moe_layer_step": 2}
        | {"num_experts_per_tok": 1, "attention_chunk_size": 8, "head_dim": 16},
    ),
    "deepseek_v2": ("deepseek_v2", _LATENT),
    "deepseek_v2-lite-like": ("deepseek_v2", _LATENT | {"q_lora_rank": None}),
    "deepseek_v3": ("deepseek_v3", _LATENT),
    "deepseek_v3-biased": ("deepseek_v3", _LATENT | _BIAS),
}
"""By case: the `model_type` and the sizes. `kimi_k2` has the structure of `deepseek_v3`."""
