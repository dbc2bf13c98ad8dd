"""Copies of checkpoints in a bundle: what loading a model and its tokenizer reads."""

from __future__ import annotations

import shutil
from pathlib import Path

from specplan.backends.manifest import MODELS
from specplan.cost_models.models.model_shape import is_gguf
from specplan.ir.files import gguf_parts

_CHECKPOINT = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken"})
"""Files of a checkpoint that are copied, by their endings; pickled ones and code are not."""


def copied_path(name: str, path: Path) -> str:
    """Where a bundle has its copy of a model: a folder, or a file in one."""
    return f"{MODELS}/{name}/{path.name}" if is_gguf(path) else f"{MODELS}/{name}"


def copy_checkpoint(model: Path, out: Path) -> None:
    """Copy a folder's safetensors and texts, or a GGUF file's parts and the texts beside it."""
    one_file = is_gguf(model)
    folder, home = (model.parent, out.parent) if one_file else (model, out)
    files = {path for path in folder.iterdir() if path.is_file() and path.suffix in _CHECKPOINT}
    if one_file:
        weights = {path for path in files if path.suffix == ".safetensors"}
        files = files - weights | {*gguf_parts(model)}
    home.mkdir(parents=True)
    for path in sorted(files):
        shutil.copyfile(path, home / path.name)
