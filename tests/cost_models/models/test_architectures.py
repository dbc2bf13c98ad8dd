"""Every family against the model that stock transformers builds, to the parameter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.models.architectures.registry import FAMILIES
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.parameters import parameter_inventory
from tests.cost_models.models.tiny_families import CANONICAL, TINY


def built(kind: str) -> Any:
    """The model of stock transformers, without storage for its weights."""
    transformers = pytest.importorskip("transformers")
    import torch

    family, sizes = TINY[kind]
    config = transformers.AutoConfig.for_model(family, **sizes)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def windows(config: Any, layers: int) -> list[int | None]:
    """Per layer what transformers says of its reach."""
    types = getattr(config, "layer_types", None)
    width = getattr(config, "sliding_window", None)
    if config.model_type == "llama4_text":
        width = config.attention_chunk_size
    if types is not None:
        return [None if kind == "full_attention" else width for kind in types]
    return [width or None] * layers


def test_every_family_is_tried() -> None:
    assert {family for family, _ in TINY.values()} | {"kimi_k2"} == set(FAMILIES)


@pytest.mark.parametrize("kind", TINY)
def test_parameters_and_windows_equal_transformers(kind: str, tmp_path: Path) -> None:
    model = built(kind)
    model.config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    shape = ModelShape.from_config(config, name=kind)
    counts = {name: p.numel() for name, p in model.named_parameters()}
    assert shape.parameters == sum(counts.values())
    inventory = parameter_inventory(shape)
    assert inventory["experts"] == sum(
        count for name, count in counts.items() if ".experts." in name and not name.endswith("bias")
    )
    assert inventory["norms"] == sum(
        count for name, count in counts.items() if "norm" in name or ".ln_" in name
    )
    assert list(shape.layer_windows) == windows(model.config, shape.num_layers)


@pytest.mark.parametrize("kind", TINY)
def test_hub_configs_need_no_defaults_of_transformers(kind: str) -> None:
    """The sizes as published, without what AutoConfig adds, say the same."""
    family, sizes = TINY[kind]
    hub = {"model_type": family, "head_dim": None} | CANONICAL | sizes
    if family in ("gpt2", "opt", "falcon"):
        hub = {"model_type": family} | sizes
    counts = sum(p.numel() for p in built(kind).parameters())
    assert ModelShape.from_config(hub).parameters == counts
