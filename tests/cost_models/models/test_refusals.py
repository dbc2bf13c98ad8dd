"""What is not priced is refused by name, with the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.models.drafter_shapes import is_drafter_folder
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import MissingCapabilityError, UsageError
from tests.cost_models.models.public_shapes import CONFIGS
from tests.cost_models.models.tiny_families import CANONICAL, TINY


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "mamba", "state_size": 16}, "'mamba'.*recurrent state"),
        ({"model_type": "jamba", "num_experts": 16}, "'jamba'.*recurrent state"),
        ({"model_type": "nemotron_h"}, "recurrent state"),
        ({"model_type": "qwen3_5", "linear_num_value_heads": 32}, "recurrent state"),
        ({"layer_types": ["linear_attention"] * 32}, "recurrent state: linear_attention"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "x", "is_encoder_decoder": True}, "encoder-decoder"),
        (
            {"model_type": "x", "text_config": {"layer_types": ["linear_attention"]}},
            "recurrent state: linear_attention",
        ),
        ({"model_type": "deepseek_v32", "index_topk": 2048}, "sparse attention"),
        ({"model_type": "dbrx", "num_experts": 16}, "mixture of experts.*unknown"),
        ({"num_local_experts": 8}, "'llama'.*mixture of experts"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"model_type": "bert"}, "'bert'.*unknown architecture"),
        ({"model_type": "x", "text_config": {"num_experts": 4}}, "unknown architecture"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "LlamaForCausalLMEagle3"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "SequenceClassification"),
        ({"model_type": "gemma3", "text_config": {"model_type": "mamba"}}, "recurrent state"),
        ({"quantization_config": {"quant_method": "aqlm"}}, r"quantised weights \(aqlm\)"),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED"}},
            "algorithm MIXED",
        ),
    ],
)
def test_unpriced_models_are_refused_by_name(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(MissingCapabilityError, match=reason):
        ModelShape.from_config(CONFIGS["llama-2-7b"] | change)


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("head_dim", "128", "a positive integer"),
        ("head_dim", [128], "a positive integer"),
        ("head_dim", 0, "a positive integer"),
        ("num_hidden_layers", 10**12, "a number of layers up to 10000"),
        ("architectures", True, "a list"),
        ("rope_scaling", "linear", "an object"),
        ("rms_norm_eps", [], "a number"),
        ("eagle_config", 3, "an object"),
        ("dflash_config", [], "an object"),
        ("mask_token_id", "3", "the id of a token"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(
    tmp_path: Path, key: str, value: object, wanted: str
) -> None:
    broken = {**CONFIGS["llama-2-7b"], key: value}
    for config in (broken, {"text_config": broken}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(UsageError, match=re.escape(f"{value!r} for {key}, not {wanted}")):
            ModelShape.from_path(tmp_path)
        assert not is_drafter_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_key_value_heads": 3}, "multiple"),
        (
            {"model_type": "qwen2", "architectures": None, "layer_types": ["full_attention"]},
            "layer",
        ),
        ({"text_config": 3, "model_type": "gemma3"}, "wrong kind"),
        ({"quantization_config": "fp8"}, "wrong kind"),
        (
            {"model_type": "mamba2", "architectures": None, "num_heads": 80, "n_groups": 7},
            "80 heads of a state do not fill 7 groups",
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"a": {"weights": {"type": "float", "num_bits": 8}}},
                    "ignore": ["re:("],
                }
            },
            "regular expression",
        ),
    ],
)
def test_wrong_values_are_named(change: dict[str, Any], reason: str) -> None:
    config = {**CONFIGS["llama-2-7b"], "use_sliding_window": True, "sliding_window": 8} | change
    with pytest.raises(UsageError, match=reason):
        ModelShape.from_config(config)


def test_more_experts_chosen_than_there_are() -> None:
    family, sizes = TINY["mixtral"]
    with pytest.raises(UsageError, match="7 of 6 experts"):
        ModelShape.from_config({"model_type": family} | sizes | {"num_experts_per_tok": 7})


WRAPPED = {
    "gemma3": ("Gemma3", {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8}),
    "llava": ("Llava", {"model_type": "llama"}),
    "mistral3": ("Mistral3", {"model_type": "mistral"}),
    "qwen2_5_vl": ("Qwen2_5_VL", {"model_type": "qwen2_5_vl_text"}),
    "qwen3_vl": ("Qwen3VL", {"model_type": "qwen3_vl_text", "head_dim": 16}),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_of_a_vision_model_the_text_is_priced(kind: str) -> None:
    stem, text = WRAPPED[kind]
    config = {
        "model_type": kind,
        "architectures": [f"{stem}ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "text_config": CANONICAL | text,
        "vision_config": {"hidden_size": 999},
    }
    shape = ModelShape.from_config(config)
    plain = {"gemma3": "gemma3_text", "llava": "llama", "mistral3": "mistral"}
    family = plain.get(kind, kind.split("_")[0].replace("qwen2_5", "qwen2"))
    alone = ModelShape.from_config(CANONICAL | text | {"model_type": family})
    assert shape.parameters == alone.parameters
    assert (shape.dtype, shape.num_layers) == ("bfloat16", 4)


def test_a_vision_model_whose_text_keys_stand_beside() -> None:
    """Qwen2-VL's published config.json has no text_config."""
    config = CANONICAL | {
        "model_type": "qwen2_vl",
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "vision_config": {"depth": 32},
    }
    alone = ModelShape.from_config(CANONICAL | {"model_type": "qwen2"})
    assert ModelShape.from_config(config).parameters == alone.parameters
