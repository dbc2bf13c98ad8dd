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
