"""Shapes equal what checkpoints hold, to the parameter, and others are refused by name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.models.files.safetensors_headers import stored_tensors, weight_files
from specplan.cost_models.models.files.stored_parts import is_parameter
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.parameters import parameter_inventory
from specplan.ir.errors import UsageError
from tests.cost_models.models.public_shapes import CONFIGS, shape
from tests.cost_models.models.tiny_families import TINY


def save_tiny(kind: str, folder: Path) -> Any:
    """Save a random tiny model with stock transformers; returns it."""
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    family, options = TINY[kind]
    config = transformers.AutoConfig.for_model(family, **options)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    return model


STORED = (
    "llama",
    "llama-tied-biased",
    "mistral",
    "qwen2",
    "qwen3",
    "gpt2",
    "gpt2-inner",
    "opt",
    "opt-350m-like",
    "opt-no-bias",
    "falcon-7b-like",
    "gemma3_text",
    "mixtral",
    "qwen3_moe",
    "gpt_oss",
    "llama4_text",
    "deepseek_v3",
    "glm4_moe",
)


@pytest.mark.parametrize("kind", STORED)
def test_parameters_equal_the_checkpoint(kind: str, tmp_path: Path) -> None:
    model = save_tiny(kind, tmp_path)
    shape = ModelShape.from_folder(tmp_path)
    tensors = stored_tensors(tmp_path)
    stored = {name: tensors[name] for name in tensors if is_parameter(name, shape)}
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert shape.parameters == sum(parameter_inventory(shape).values())
    assert shape.parameters == sum(tensor.elements for tensor in stored.values())
    assert shape.dtype == "float32"
    assert shape.weight_bytes == sum(tensor.bytes for tensor in stored.values())
    # config.json alone says the same
    (tmp_path / "model.safetensors").unlink()
    assert ModelShape.from_folder(tmp_path).parameters == shape.parameters


def test_windows_by_layer(tmp_path: Path) -> None:
    save_tiny("qwen2", tmp_path / "a")
    assert ModelShape.from_folder(tmp_path / "a").layer_windows == (None, None, 8, 8)
    save_tiny("mistral", tmp_path / "b")
    assert ModelShape.from_folder(tmp_path / "b").layer_windows == (8, 8, 8, 8)


def test_dtype_can_be_chosen(tmp_path: Path) -> None:
    save_tiny("llama", tmp_path)
    half = ModelShape.from_folder(tmp_path, dtype="bfloat16")
    assert (half.dtype, half.weight_bytes) == ("bfloat16", 2 * half.parameters)
    assert half.digest == ModelShape.from_folder(tmp_path).digest
    with pytest.raises(UsageError, match="int3"):
        ModelShape.from_folder(tmp_path, dtype="int3")


def test_a_config_without_a_dtype_is_taken_as_bfloat16(tmp_path: Path) -> None:
    save_tiny("llama", tmp_path)
    stored = ModelShape.from_folder(tmp_path)
    assert (stored.dtype, stored.states_dtype) == ("float32", True)  # that of the weights
    (tmp_path / "model.safetensors").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("dtype", "torch_dtype"):
        config.pop(key, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    for assumed in (ModelShape.from_folder(tmp_path), ModelShape.from_config(config)):
        assert (assumed.dtype, assumed.states_dtype) == ("bfloat16", False)
    given = ModelShape.from_config(config, dtype="float16")
    assert (given.dtype, given.states_dtype) == ("float16", True)


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
    model = shape(name)
    assert round(model.matmul_parameters / 1e9, 4) == GOLDEN[name][0]
    assert model.kv_bytes_per_token == GOLDEN[name][1]
