"""Sizes of public models against the published totals of their checkpoints.

The configs hold the published sizes; a total is that of the safetensors files on the Hub unless a
comment names another source.
"""

from __future__ import annotations

from typing import Any

import pytest

from specplan.cost_models.models.model_shape import ModelShape


def sizes(
    model_type: str,
    hidden: int,
    layers: int,
    heads: tuple[int, int],
    inner: int,
    vocabulary: int,
    **more: Any,
) -> dict[str, Any]:
    """The keys that every family has."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    } | more


def mamba2(hidden: int, heads: int, groups: int, vocabulary: int) -> dict[str, Any]:
    """Mamba-2 of 64 layers."""
    return {
        "model_type": "mamba2",
        "hidden_size": hidden,
        "num_hidden_layers": 64,
        "num_heads": heads,
        "head_dim": 64,
        "state_size": 128,
        "n_groups": groups,
        "vocab_size": vocabulary,
    }


def falcon_h1(heads: int, head_dim: int, state: int, groups: int = 1) -> dict[str, Any]:
    """The mixers of Falcon-H1, as their config.json have them."""
    return {
        "mamba_d_ssm": heads * head_dim,
        "mamba_n_heads": heads,
        "mamba_d_head": head_dim,
        "mamba_d_state": state,
        "mamba_n_groups": groups,
    }


QWEN3_NEXT = sizes("qwen3_next", 2048, 48, (16, 2), 5120, 151936, head_dim=256) | {
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
WITH_STATES = {
    # arXiv 2405.21060, section 9.2: 2.7B
    "mamba2-2.7b": (mamba2(2560, 80, 1, 50288) | {"tie_word_embeddings": True}, 2.70),
    # layers, heads and states: table of FalconH1 in transformers' documentation; model cards on the
    # Hub: 0.52B, 7.59B, 33.6B
    "falcon-h1-0.5b": (
        sizes("falcon_h1", 1024, 36, (8, 2), 2048, 32784, head_dim=64) | falcon_h1(24, 64, 128),
        0.521,
    ),
    "falcon-h1-7b": (
        sizes("falcon_h1", 3072, 44, (12, 2), 12288, 130048, head_dim=128)
        | falcon_h1(24, 128, 256),
        7.59,
    ),
    "falcon-h1-34b": (
        sizes("falcon_h1", 5120, 72, (20, 4), 21504, 261120, head_dim=128)
        | falcon_h1(32, 128, 256, groups=2),
        33.6,
    ),
    # model card: 80B in all, 79B without the embeddings
    "qwen3-next-80b-a3b": (QWEN3_NEXT, 80.0),
}
"""Targets with recurrent states, and their parameters as published, billions."""
EXACT = {
    "gemma-2-9b": (
        sizes("gemma2", 3584, 42, (16, 8), 14336, 256000, head_dim=256, sliding_window=4096),
        9_241_705_984,
    ),
    "phi-3-mini-4k": (
        sizes("phi3", 3072, 32, (32, 32), 8192, 32064, sliding_window=2047),
        3_821_079_552,
    ),
    "starcoder2-3b": (sizes("starcoder2", 3072, 30, (24, 2), 12288, 49152), 3_030_371_328),
    "olmo-2-7b": (sizes("olmo2", 4096, 32, (32, 32), 11008, 100352), 7_298_617_344),
    "smollm3-3b": (sizes("smollm3", 2048, 36, (16, 4), 11008, 128256), 3_075_098_624),
    "falcon-7b": (sizes("falcon", 4544, 32, (71, 71), 18176, 65024), 6_921_720_704),
    "pythia-6.9b": (sizes("gpt_neox", 4096, 32, (32, 32), 16384, 50432), 6_857_302_016),
    "command-r": (sizes("cohere", 8192, 40, (64, 64), 22528, 256000), 34_980_831_232),
    # mistral.ai/news/codestral-mamba
    "mamba-codestral-7b": (mamba2(4096, 128, 8, 32768), 7_285_403_648),
    "deepseek-v2-lite": (
        sizes("deepseek_v2", 2048, 27, (16, 16), 10944, 102400)
        | {"q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128}
        | {"qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 1408}
        | {"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6}
        | {"first_k_dense_replace": 1},
        15_706_484_224,
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_totals_to_the_parameter(name: str) -> None:
    config, total = EXACT[name]
    assert ModelShape.from_config(config, name=name).parameters == total


@pytest.mark.parametrize(
    ("layers", "experts", "total", "active", "gibibytes"),
    [(36, 128, 116.83, 5.13, 60.8), (24, 32, 20.91, 3.61, 12.8)],
    ids=["gpt-oss-120b", "gpt-oss-20b"],
)
def test_gpt_oss(layers: int, experts: int, total: float, active: float, gibibytes: float) -> None:
    """Model card of gpt-oss (arXiv 2508.10925), table 1: parameters and size of the checkpoint.

    Its active parameters count the head and not the embedding.
    """
    unquantised = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens"]
    shape = ModelShape.from_config(
        sizes("gpt_oss", 2880, layers, (64, 8), 2880, 201088, head_dim=64, sliding_window=128)
        | {"num_local_experts": experts, "num_experts_per_tok": 4}
        | {
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [*unquantised, "lm_head"],
            }
        }
    )
    assert round(shape.parameters / 1e9, 2) == total
    assert round((shape.active_parameters - 201088 * 2880) / 1e9, 2) == active
    assert round(shape.weight_bytes / 2**30, 1) == gibibytes


def test_llama_4_maverick() -> None:
    """Model card: 400B in all and 17B active, its vision tower of 0.9B included."""
    config = sizes("llama4_text", 5120, 48, (40, 8), 8192, 202048, head_dim=128) | {
        "intermediate_size_mlp": 16384,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 8192,
    }
    shape = ModelShape.from_config(config)
    assert shape.parameters / 1e9 == pytest.approx(400, rel=0.005)
    assert shape.active_parameters / 1e9 == pytest.approx(17, rel=0.02)
    assert shape.layer_windows[:4] == (8192, 8192, 8192, None)


@pytest.mark.parametrize("name", WITH_STATES)
def test_models_with_recurrent_states(name: str) -> None:
    config, billions = WITH_STATES[name]
    shape = ModelShape.from_config(config, name=name)
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_qwen3_next() -> None:
    """Model card: 3B active without the embeddings; three delta nets, then a layer of attention."""
    shape = ModelShape.from_config(QWEN3_NEXT)
    embeddings = 2 * shape.vocab_size * shape.hidden_size
    assert (shape.parameters - embeddings) / 1e9 == pytest.approx(79, rel=0.005)
    assert (shape.active_parameters - embeddings) / 1e9 == pytest.approx(3.2, rel=0.02)
    assert [layer.attention is not None for layer in shape.layers] == 12 * [
        False,
        False,
        False,
        True,
    ]
    # 12 layers, 2 KV heads of 256 for keys and values each, bfloat16
    assert shape.kv_bytes_per_token == 12 * 2 * 2 * 256 * 2
    # 36 layers: 32 heads of 128 x 128, and 3 inputs of 8192 channels, float32
    assert shape.state_bytes == 36 * (32 * 128 * 128 + 3 * 8192) * 4
