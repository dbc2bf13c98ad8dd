"""Trained exits with random weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def write_exits(folder: Path, kind: str, layers: Sequence[int], width: int) -> None:
    """Write a folder as `specplan train --exits` does."""
    folder.mkdir()
    config = {"model_type": "specplan_exits", "kind": kind, "layers": [*layers]}
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": width}))
    random = np.random.default_rng(width)
    weights = random.normal(0.0, 2.0 / width**0.5, (len(layers), width)).astype(np.float32)
    tensors = {"weights": weights, "biases": np.linspace(-0.5, 0.5, len(layers), dtype=np.float32)}
    save_file(tensors, folder / "model.safetensors")
