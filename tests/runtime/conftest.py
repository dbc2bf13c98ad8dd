"""Shared fixtures: tiny checkpoints, made once per session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny(name, seed=0)` is the folder of a tiny random checkpoint of that family."""
    from tests.runtime.tiny_models import save_tiny

    @cache
    def folder(name: str, seed: int = 0) -> Path:
        return save_tiny(name, tmp_path_factory.mktemp(f"{name}_{seed}"), seed=seed)

    return folder
