"""Tiny pairs, held-out prompts, and plans of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the checkpoints `target` and `draft`, vocabulary 61."""
    from tests.backends.pairs import save_pair

    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder)
    return folder


@pytest.fixture(scope="session")
def held_out(repository: Path) -> list[str]:
    """100 held-out prompts: code first, then prose."""
    texts = []
    for name in ("code", "prose"):
        lines = (repository / "examples" / "prompts" / f"{name}.jsonl").read_text().splitlines()
        texts += [json.loads(line)["text"] for line in lines]
    assert len(texts) >= 200
    return texts[:200:2]
