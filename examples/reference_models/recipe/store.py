"""Files that survive being killed: written under a temporary name, then renamed.

A checkpoint is one safetensors file whose header carries the rest as JSON, so tensors and counters
can never come from two different moments.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in one step."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], meta: dict[str, str]) -> None:
    """Write a safetensors file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, temporary, meta)
    temporary.chmod(0o644)
    os.replace(temporary, path)


def save_checkpoint(path: Path, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Save tensors and a JSON-able state together."""
    write_tensors(path, tensors, {"state": json.dumps(state)})


def load_checkpoint(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Read a checkpoint back, or None if there is none."""
    if not path.exists():
        return None
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state = json.loads(file.metadata()["state"])
    return tensors, state
