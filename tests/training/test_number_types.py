"""Heads of targets in other number types, and on other devices, are trained as those in float64."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specplan.cost_models.models.new_heads import eagle3_config, medusa_config
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.loading import load_model
from specplan.training.learning.packing import Text
from specplan.training.recipe import Recipe
from specplan.training.trainer import train_head
from tests.backends.pairs import save_pair
from tests.training.head_losses import head_loss

RECIPE = Recipe(rows=2, row_tokens=40, learning_rate=0.02, warmup=2, unroll=3, clip=10.0)
FILES = ("model.safetensors", "optimizer.state", "training.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder)
    return folder / "target"


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    made = torch.Generator().manual_seed(1)
    rows = torch.randint(61, (4, 30), generator=made).tolist()
    return [Text(tuple(row), 5) for row in rows]


def config(folder: Path) -> dict[str, Any]:
    target = json.loads((folder / "config.json").read_text())
    return eagle3_config(target, "target") | {"eagle_aux_hidden_state_layer_ids": [1, 2]}


def halves(
    described: dict[str, Any], target: CausalModel, texts: list[Text], folder: Path, recipe: Recipe
) -> tuple[float, ...]:
    """Losses of 40 steps, which two times 20 repeat: on a CPU bit by bit."""
    whole = train_head(described, target, texts, 40, folder / "whole", recipe)
    train_head(described, target, texts, 40, folder / "parts", recipe, until=20)
    second = train_head(described, target, texts, 40, folder / "parts", recipe)
    assert second.losses == pytest.approx(whole.losses[20:], rel=1e-6)
    for name in FILES if target.device.type == "cpu" else ():
        assert (folder / "whole" / name).read_bytes() == (folder / "parts" / name).read_bytes()
    loaded = load_head(folder / "whole", target)
    assert head_loss(loaded, texts, recipe) == head_loss(whole.head, texts, recipe)
    return whole.losses


def test_small_steps_are_not_lost_in_bfloat16(
    folder: Path, texts: list[Text], tmp_path: Path
) -> None:
    """A weight in bfloat16 has 8 bits: each of these steps alone would leave most as they are."""
    small = replace(RECIPE, learning_rate=2e-5, warmup=1, cooling=0.0)
    losses = {}
    for dtype in ("float64", "bfloat16"):
        target = load_model(folder, dtype=dtype)
        losses[dtype] = halves(config(folder), target, texts, tmp_path / dtype, small)
    gained, expected = (row[0] - row[-1] for row in (losses["bfloat16"], losses["float64"]))
    assert expected > 0.1
    assert gained == pytest.approx(expected, rel=0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["eagle3", "medusa"])
def test_a_gpu_trains_what_a_cpu_does(
    family: str, folder: Path, texts: list[Text], tmp_path: Path
) -> None:
    described = config(folder)
    if family == "medusa":
        described = medusa_config(described, "target", heads=3)
    there = load_model(folder, dtype="float64", device="cuda")
    losses = halves(described, there, texts, tmp_path / "gpu", RECIPE)
    here = load_model(folder, dtype="float64")
    expected = train_head(described, here, texts, 40, tmp_path / "cpu", RECIPE).losses
    assert losses == pytest.approx(expected, rel=1e-4)  # angles of rotary embeddings are float32
