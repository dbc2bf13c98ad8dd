"""Stored widths, what a quantization_config says of them, and what a checkpoint holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import FORMATS, integer_groups, number_format
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import CONFIGS
from tests.cost_models.models.tiny_families import CANONICAL, TINY

BITS = {
    # llama.cpp's own table of bits per weight (its quantize tool)
    "Q4_0": 4.5,
    "Q8_0": 8.5,
    "Q4_K": 4.5,
    "Q5_K": 5.5,
    "Q6_K": 6.5625,
    "IQ4_XS": 4.25,
    "MXFP4": 4.25,
    "NVFP4": 4.5,
    # scales and zero points beside the weights
    "int4-g128": (4 * 128 + 16 + 4) / 128,
    "int4-g32-tinygemm": 5.0,
    "nf4": 4.5,
    "nf4-double": 4 + 8 / 64 + 32 / (64 * 256),
    "fp8-128x128": 8 + 32 / 128**2,
    "nvfp4": 4.5,
    "bfloat16": 16.0,
}


@pytest.mark.parametrize("name", BITS)
def test_bits_per_weight(name: str) -> None:
    assert 8 * number_format(name).bytes_per_element == pytest.approx(BITS[name], rel=1e-12)


def test_unknown_format_is_named() -> None:
    with pytest.raises(UsageError, match="int3"):
        number_format("int3")
    assert all(name == form.name for name, form in FORMATS.items())


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
PACKED: dict[str, tuple[dict[str, Any], dict[str, str], str | None]] = {
    # settings, format by part, math
    "gptq": (GPTQ, {"attention": "int4-g128", "mlp": "int4-g128", "head": "float16"}, None),
    "gptq-head": (GPTQ | {"lm_head": True}, {"head": "int4-g128"}, None),
    "awq": (GPTQ | {"quant_method": "awq", "group_size": 64}, {"mlp": "int4-g64"}, None),
    "bnb8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, {"mlp": "w8a8"}, "int8"),
    "bnb4": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        {"mlp": "nf4-double", "head": "float16"},
        None,
    ),
    "fp8": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        {"attention": "fp8-128x128", "head": "float16", "embedding": "float16"},
        "fp8",
    ),
    "fp8-dynamic": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                    "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
                }
            },
            "ignore": ["lm_head", "re:.*self_attn.*"],
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        },
        {"attention": "float16", "mlp": "fp8", "head": "float16", "kv": "fp8"},
        "fp8",
    ),
    "w4a16": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4, "type": "int", "group_size": 128, "symmetric": True
                    },
                    "input_activations": None,
                }
            },
            "ignore": ["lm_head"],
        },
        {"attention": "int4-g128-symmetric", "mlp": "int4-g128-symmetric"},
        None,
    ),
    "w8a8": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 8, "type": "int"},
                    "input_activations": {"num_bits": 8, "type": "int"},
                }
            },
        },
        {"mlp": "w8a8", "head": "w8a8"},
        "int8",
    ),
    "nvfp4": (
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "ignore": ["lm_head", "model.layers.*.self_attn*"],
            "kv_cache_quant_algo": "FP8",
        },
        {"attention": "float16", "mlp": "nvfp4", "head": "float16", "kv": "fp8"},
        "fp4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PACKED)
def test_quantization_config(case: str) -> None:
    settings, expected, math = PACKED[case]
    shape = ModelShape.from_config(CONFIGS["llama-3-8b"] | {"quantization_config": settings})
    for part, name in expected.items():
        form = shape.kv_format if part == "kv" else shape.formats.part(part)
        assert (part, form.name) == (part, name)
    up = next(op for op in forward_ops(shape, 1, 4, 100) if op.name == "mlp_up")
    assert up.math == (math or "float16")
    assert up.cost.weight_bytes == pytest.approx(
        shape.formats.mlp.bytes_per_element * 4096 * 2 * 14336
    )
    attention = next(op for op in forward_ops(shape, 1, 4, 100) if op.name == "attention")
    assert attention.math == "float16"
    assert attention.cost.kv_bytes == shape.kv_format.bytes_per_element * 2 * 8 * 128 * 104


def test_only_the_experts_of_gpt_oss_are_packed() -> None:
    family, sizes = TINY["gpt_oss"]
    config = {"model_type": family} | sizes | {"torch_dtype": "bfloat16"}
    settings = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    shape = ModelShape.from_config(config | {"quantization_config": settings})
    assert shape.formats.experts.name == "mxfp4"
    assert shape.formats.attention.name == shape.formats.router.name == "bfloat16"
    assert {op.math for op in forward_ops(shape, 1, 1, 8)} == {"bfloat16"}


def test_excluded_layers_count_by_their_share() -> None:
    """Where some layers are left as they are, the part has the mean width."""
    config = CANONICAL | {"model_type": "llama", "torch_dtype": "float16"}
    settings = {
        "quant_method": "fp8",
        "modules_to_not_convert": ["model.layers.0.mlp", "model.layers.3.mlp.down_proj"],
    }
    shape = ModelShape.from_config(config | {"quantization_config": settings})
    excluded = (3 + 1) / (4 * 3)  # matrices of equal size
    assert shape.formats.mlp.bytes_per_element == pytest.approx(1 + excluded)
    assert (shape.formats.mlp.name, shape.formats.mlp.math) == ("float16/fp8", "fp8")


def test_what_if_formats() -> None:
    """Prices of formats that nobody stored yet: weight-only or not, head, cache."""
    config = CONFIGS["llama-2-7b"]
    plain = ModelShape.from_config(config)
    packed = ModelShape.from_config(
        config, weight_format="int4-g32-tinygemm", head_format="int8", kv_format="fp8"
    )
    matrices = plain.matmul_parameters - 32000 * 4096
    assert packed.weight_bytes == pytest.approx(
        plain.weight_bytes - matrices * (2 - 0.625) - 32000 * 4096
    )
    assert packed.kv_bytes_per_token == plain.kv_bytes_per_token / 2
    assert {op.math for op in forward_ops(packed, 1, 1, 8)} == {"float16"}
    eight = ModelShape.from_config(config, weight_format="w8a8")
    assert {op.math for op in forward_ops(eight, 1, 1, 8)} == {"float16", "int8"}
    with pytest.raises(UsageError, match="int3"):
        ModelShape.from_config(config, weight_format="int3")


def packed_checkpoint(folder: Path, group: int = 16) -> int:
    """A tiny Llama as GPTQ packs it; returns the bytes of all its tensors."""
    config = CANONICAL | {"model_type": "llama", "torch_dtype": "float16"}
    settings = {"quant_method": "gptq", "bits": 4, "group_size": group}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    half = np.float16
    tensors = {
        "model.embed_tokens.weight": np.zeros((101, hidden), half),
        "lm_head.weight": np.zeros((101, hidden), half),
        "model.norm.weight": np.zeros(hidden, half),
    }
    shapes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, 16),
        "self_attn.v_proj": (hidden, 16),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = np.zeros(hidden, half)
        for name, (inputs, outputs) in shapes.items():
            groups = inputs // group
            tensors |= {
                f"{prefix}.{name}.qweight": np.zeros((inputs // 8, outputs), np.int32),
                f"{prefix}.{name}.qzeros": np.zeros((groups, outputs // 8), np.int32),
                f"{prefix}.{name}.scales": np.zeros((groups, outputs), half),
                f"{prefix}.{name}.g_idx": np.zeros(inputs, np.int32),
            }
    save_file(tensors, folder / "model.safetensors")
    return sum(tensor.nbytes for tensor in tensors.values())


def test_packed_checkpoint_has_its_exact_bytes(tmp_path: Path) -> None:
    size = packed_checkpoint(tmp_path)
    shape = ModelShape.from_folder(tmp_path)
    assert shape.weight_bytes == pytest.approx(size, rel=1e-12)
    assert shape.dtype == "float16"
    stated = ModelShape.from_config(json.loads((tmp_path / "config.json").read_text()))
    assert shape.parameters == stated.parameters
    width = integer_groups(4, 16).bytes_per_element
    assert stated.formats.mlp.bytes_per_element == width
    indices = 4 / 32  # g_idx: 4 bytes per input, shared by at least 32 outputs
    assert width < shape.formats.mlp.bytes_per_element < width + indices
    # what if it were stored otherwise
    other = ModelShape.from_folder(tmp_path, weight_format="float16")
    assert other.weight_bytes == 2 * shape.parameters


def test_packed_checkpoint_without_a_part_is_named(tmp_path: Path) -> None:
    packed_checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    wider = config | {"intermediate_size": 48 * 100}
    (tmp_path / "config.json").write_text(json.dumps(wider))
    with pytest.raises(UsageError, match="bytes of mlp"):
        ModelShape.from_folder(tmp_path)
