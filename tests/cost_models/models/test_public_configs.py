"""Real config.json files: parameters as published, caches and bytes as their sizes imply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.models.forward import forward_cost
from specplan.cost_models.models.model_shape import ModelShape

PUBLISHED = {
    # Qwen3 technical report (arXiv 2505.09388) and model cards; tied heads counted once
    "Qwen--Qwen3-0.6B": (0.596, 0.596),
    "Qwen--Qwen3-1.7B": (1.72, 1.72),
    "Qwen--Qwen3-8B": (8.19, 8.19),
    "Qwen--Qwen3-32B": (32.76, 32.76),
    "Qwen--Qwen3-32B-FP8": (32.76, 32.76),
    "Qwen--Qwen3-30B-A3B": (30.5, 3.35),
    "Qwen--Qwen3-235B-A22B": (235.0, 22.2),
    # Llama 3.1 model cards
    "meta-llama--Meta-Llama-3.1-8B": (8.03, 8.03),
    "meta-llama--Meta-Llama-3.1-70B": (70.55, 70.55),
    "meta-llama--Meta-Llama-3.1-405B": (405.85, 405.85),
    # arXiv 2401.04088: "47B", of which 13B active; Mistral's documentation: 46.7B and 12.9B
    "mistralai--Mixtral-8x7B-v0.1": (46.7, 12.9),
    # README_WEIGHTS.md of DeepSeek-V3: 671B, activated 36.6B with the head, 0.93B embedding more
    "deepseek-ai--DeepSeek-V3": (671.0, 37.55),
    # Kimi K2 (arXiv 2507.20534): 1.03T (1.026T in its weights), 32.6B activated and its rounding
    "moonshotai--Kimi-K2-Instruct": (1026.4, 32.86),
    # model card: 109B total and 17B active with the vision tower; text only, see below
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (107.77, 17.17),
}
"""Parameters and those active per token, billions."""


def config(name: str, shared: Path) -> dict[str, Any]:
    path = shared / "data/model_configs" / name / "config.json"
    if not path.exists():
        pytest.skip(f"not there: {path}")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name: str, shared: Path) -> None:
    shape = ModelShape.from_config(config(name, shared), name=name)
    total, active = PUBLISHED[name]
    assert shape.parameters / 1e9 == pytest.approx(total, rel=0.005)
    assert shape.active_parameters / 1e9 == pytest.approx(active, rel=0.01)
    assert shape.dtype == "bfloat16"
    assert forward_cost(shape, 1, 1, 100).weight_bytes < shape.weight_bytes


@pytest.mark.shared
def test_exact_totals_of_checkpoints(shared: Path) -> None:
    """Totals that the Hub shows for the safetensors files; Qwen3's small ones store tied heads."""
    exact = {
        "Qwen--Qwen3-0.6B": 751_632_384,
        "Qwen--Qwen3-1.7B": 2_031_739_904,
        "Qwen--Qwen3-8B": 8_190_735_360,
        "meta-llama--Meta-Llama-3.1-8B": 8_030_261_248,
        "mistralai--Mixtral-8x7B-v0.1": 46_702_792_704,
        "Qwen--Qwen3-30B-A3B": 30_532_122_624,
    }
    for name, total in exact.items():
        shape = ModelShape.from_config(config(name, shared))
        second = shape.vocab_size * shape.hidden_size if shape.tied_embeddings else 0
        assert shape.parameters + second == total


@pytest.mark.shared
def test_scout_with_its_vision_tower_has_109_billion(shared: Path) -> None:
    """The vision tower by its published sizes, counted by stock transformers."""
    transformers = pytest.importorskip("transformers")
    import torch

    vision = transformers.Llama4VisionConfig(
        hidden_size=1408,
        num_hidden_layers=34,
        num_attention_heads=16,
        intermediate_size=5632,
        vision_output_dim=4096,
        projector_input_dim=4096,
        projector_output_dim=4096,
        image_size=336,
    )
    with torch.device("meta"):
        tower = transformers.models.llama4.modeling_llama4.Llama4VisionModel(vision)
    shape = ModelShape.from_config(config("meta-llama--Llama-4-Scout-17B-16E-Instruct", shared))
    projector = 4096 * shape.hidden_size
    total = shape.parameters + sum(p.numel() for p in tower.parameters()) + projector
    assert total / 1e9 == pytest.approx(109, rel=0.005)


@pytest.mark.shared
def test_multi_token_prediction_is_a_drafter_of_its_own(shared: Path) -> None:
    """README_WEIGHTS.md of DeepSeek-V3: 11.5B parameters of its own, 685B stored in all."""
    shape = ModelShape.from_config(config("deepseek-ai--DeepSeek-V3", shared), name="v3")
    (drafter,) = shape.drafter_modules
    assert drafter.parameters / 1e9 == pytest.approx(11.5, rel=0.01)  # 11.61 with the projection
    copies = 2 * shape.vocab_size * shape.hidden_size  # embedding and head are stored again
    stored = shape.parameters + drafter.parameters + copies
    assert stored / 1e9 == pytest.approx(685, rel=0.005)
    assert drafter.kv_bytes_per_token == 576 * 2
    ops = forward_cost(drafter, 1, 1, 100)
    assert ops.flops < 0.05 * forward_cost(shape, 1, 1, 100).flops
    assert not drafter.drafter_modules


@pytest.mark.shared
def test_bytes_of_stored_formats(shared: Path) -> None:
    """FP8 blocks of 128 x 128 with a float32 scale; embedding and head stay in bfloat16."""
    plain = ModelShape.from_config(config("Qwen--Qwen3-32B", shared))
    packed = ModelShape.from_config(config("Qwen--Qwen3-32B-FP8", shared))
    tables = 2 * 2 * 151936 * 5120
    matrices = plain.matmul_parameters - 151936 * 5120
    norms = 2 * (plain.parameters - matrices - 2 * 151936 * 5120)
    assert packed.weight_bytes == tables + norms + matrices * (1 + 4 / 16384)
    assert packed.kv_bytes_per_token == plain.kv_bytes_per_token
    assert packed.formats.mlp.math == "fp8"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("deepseek-ai--DeepSeek-V3", 61 * 576 * 2),
        ("Qwen--Qwen3-30B-A3B", 48 * 2 * 4 * 128 * 2),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 48 * 2 * 8 * 128 * 2),
        ("mistralai--Mixtral-8x7B-v0.1", 131072),
    ],
)
def test_cache_per_token(name: str, bytes_per_token: int, shared: Path) -> None:
    assert ModelShape.from_config(config(name, shared)).kv_bytes_per_token == bytes_per_token
