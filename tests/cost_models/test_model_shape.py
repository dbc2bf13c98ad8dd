"""Shapes equal what checkpoints hold, to the parameter, and others are refused by name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.model_shape import ModelShape
from specplan.cost_models.parameters import parameter_inventory
from specplan.cost_models.safetensors_headers import parameter_tensors, weight_files
from specplan.ir.errors import MissingCapabilityError, UsageError
from tests.cost_models.public_shapes import CONFIGS, shape

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 101,
    "max_position_embeddings": 64,
}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101, "n_positions": 64}
OPT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 48,
    "vocab_size": 101,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 32,
}
TINY = {
    "llama": ("Llama", SIZES),
    "llama-tied-biased": (
        "Llama",
        SIZES
        | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 16},
    ),
    "mistral-window": ("Mistral", SIZES | {"sliding_window": 8}),
    "qwen2-mixed": (
        "Qwen2",
        SIZES | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", SIZES | {"head_dim": 16}),
    "qwen3-biased": ("Qwen3", SIZES | {"head_dim": 16, "attention_bias": True}),
    "gpt2": ("GPT2", GPT2),
    "gpt2-inner": ("GPT2", GPT2 | {"n_inner": 40, "tie_word_embeddings": False}),
    "opt": ("OPT", OPT),
    "opt-350m-like": ("OPT", OPT | {"word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "opt-no-bias": ("OPT", OPT | {"enable_bias": False, "layer_norm_elementwise_affine": False}),
}


def save_tiny(kind: str, folder: Path) -> Any:
    """Save a random tiny model with stock transformers; returns it."""
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    family, options = TINY[kind]
    config = getattr(transformers, f"{family}Config")(**options)
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{family}{head}")(config)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", TINY)
def test_parameters_equal_the_checkpoint(kind: str, tmp_path: Path) -> None:
    model = save_tiny(kind, tmp_path)
    found = ModelShape.from_folder(tmp_path)
    stored = parameter_tensors(tmp_path, found.tied_embeddings)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.parameters == sum(parameter_inventory(found).values())
    assert found.parameters == sum(tensor.elements for tensor in stored.values())
    assert found.dtype == "float32"
    assert found.weight_bytes == sum(tensor.bytes for tensor in stored.values())
    # config.json alone says the same
    (tmp_path / "model.safetensors").unlink()
    assert ModelShape.from_folder(tmp_path).parameters == found.parameters


def test_windows_by_layer(tmp_path: Path) -> None:
    save_tiny("qwen2-mixed", tmp_path / "a")
    assert ModelShape.from_folder(tmp_path / "a").layer_windows == (None, 8)
    save_tiny("mistral-window", tmp_path / "b")
    assert ModelShape.from_folder(tmp_path / "b").layer_windows == (8, 8)


def test_dtype_can_be_chosen(tmp_path: Path) -> None:
    save_tiny("llama", tmp_path)
    half = ModelShape.from_folder(tmp_path, dtype="bfloat16")
    assert (half.dtype, half.weight_bytes) == ("bfloat16", 2 * half.parameters)
    assert half.digest == ModelShape.from_folder(tmp_path).digest
    with pytest.raises(UsageError, match="int3"):
        ModelShape.from_folder(tmp_path, dtype="int3")


def test_digest_is_the_checkpoints_identity(tmp_path: Path) -> None:
    save_tiny("llama", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    before = ModelShape.from_folder(tmp_path / "a").digest
    assert before == ModelShape.from_folder(tmp_path / "copy").digest
    weights = tmp_path / "a/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1  # the weights differ in one bit
    weights.write_bytes(bytes(data))
    assert before != ModelShape.from_folder(tmp_path / "a").digest


def test_digest_of_a_config_alone(tmp_path: Path) -> None:
    """Shapes without weights are the same model whatever library version wrote them."""
    newer = CONFIGS["llama-2-7b"] | {"transformers_version": "9.9", "use_cache": False}
    other = CONFIGS["llama-2-7b"] | {"rope_theta": 5.0}
    assert ModelShape.from_config(newer).digest == shape("llama-2-7b").digest
    assert ModelShape.from_config(other).digest != shape("llama-2-7b").digest


def test_sharded_checkpoint(tmp_path: Path) -> None:
    model = save_tiny("llama", tmp_path)
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(weight_files(tmp_path / "sharded")) > 1
    assert ModelShape.from_folder(tmp_path / "sharded").parameters == sum(
        p.numel() for p in model.parameters()
    )
    os.unlink(weight_files(tmp_path / "sharded")[0])
    with pytest.raises(UsageError, match="missing"):
        ModelShape.from_folder(tmp_path / "sharded")


def test_broken_checkpoints_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        ModelShape.from_folder(tmp_path)
    save_tiny("llama", tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    with pytest.raises(UsageError, match="length"):
        ModelShape.from_folder(tmp_path)
    weights.write_bytes(b"\xff" * 64)
    with pytest.raises(UsageError, match="header"):
        ModelShape.from_folder(tmp_path)
    weights.write_bytes(whole)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 50}))
    with pytest.raises(UsageError, match="parameters"):
        ModelShape.from_folder(tmp_path)
    del config["hidden_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="hidden_size"):
        ModelShape.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, "mixture of experts"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "latent attention"),
        ({"model_type": "mamba2", "state_size": 128}, "recurrent state"),
        ({"model_type": "gemma3"}, "unknown architecture"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "LlamaForCausalLMEagle3"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"model_type": "x", "text_config": {"num_experts": 4}}, "mixture of experts"),
    ],
)
def test_unpriced_architectures_are_refused_by_name(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(MissingCapabilityError, match=reason):
        ModelShape.from_config(CONFIGS["llama-2-7b"] | change)


# Parameters without the input embedding, billions, and KV bytes per token in 16 bits: sums of
# the matrices in the published configs.
GOLDEN = {
    "llama-2-7b": (6.6071, 524288),
    "llama-3-8b": (7.5047, 131072),
    "mistral-7b": (7.1104, 131072),
    "qwen2-7b": (7.0703, 57344),
    "llama-2-70b": (68.7132, 327680),
    "llama-3-70b": (69.5017, 327680),
    "qwen2-72b": (71.4584, 327680),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_parameters_and_cache(name: str) -> None:
    found = shape(name)
    assert round(found.matmul_parameters / 1e9, 4) == GOLDEN[name][0]
    assert found.kv_bytes_per_token == GOLDEN[name][1]


# Parameter counts of the model cards (Qwen3 technical report, Llama 3.1 model cards), billions.
DENSE = {
    "Qwen--Qwen3-0.6B": 0.596,
    "Qwen--Qwen3-1.7B": 1.721,
    "Qwen--Qwen3-8B": 8.191,
    "Qwen--Qwen3-32B": 32.76,
    "meta-llama--Meta-Llama-3.1-8B": 8.030,
    "meta-llama--Meta-Llama-3.1-70B": 70.554,
    "meta-llama--Meta-Llama-3.1-405B": 405.85,
}
REFUSED = {
    "Qwen--Qwen3-235B-A22B": "qwen3_moe",
    "Qwen--Qwen3-30B-A3B": "qwen3_moe",
    "Qwen--Qwen3-32B-FP8": "fp8",
    "deepseek-ai--DeepSeek-V3": "latent attention",
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": "llama4",
    "mistralai--Mixtral-8x7B-v0.1": "mixtral",
    "moonshotai--Kimi-K2-Instruct": "kimi_k2",
}


@pytest.mark.shared
@pytest.mark.parametrize("name", [*DENSE, *REFUSED])
def test_public_configs(name: str, shared: Path) -> None:
    path = shared / "data/model_configs" / name / "config.json"
    if not path.exists():
        pytest.skip(f"not there: {path}")
    config = json.loads(path.read_text())
    if name in REFUSED:
        with pytest.raises(MissingCapabilityError, match=REFUSED[name]):
            ModelShape.from_config(config, name=name)
    else:
        found = ModelShape.from_config(config, name=name)
        assert found.parameters / 1e9 == pytest.approx(DENSE[name], rel=0.005)
        assert found.dtype == "bfloat16"
