"""What the tests of the reference pair share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "reference_models"
PROMPTS = ROOT / "examples" / "prompts"

sys.path.insert(0, str(MODELS))


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of the reference pair."""
    return MODELS


@pytest.fixture(scope="session")
def prompts() -> dict[str, list[dict[str, Any]]]:
    """The prompts of each task."""
    out = {}
    for task in ("code", "prose", "functions"):
        lines = (PROMPTS / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()
        out[task] = [json.loads(line) for line in lines]
    return out
