"""A small problem on real text: tiny random models behind the reference tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.backends.pairs import save_pair

REPOSITORY = Path(__file__).resolve().parent.parent.parent
TOKENIZER = REPOSITORY / "examples" / "reference_models" / "target"


def write_problem(folder: Path, *, prompts: int = 8, **workload: Any) -> Path:
    """Write models, prompts and `problem.yaml` (JSON is YAML) below `folder`."""
    size = len(json.loads((TOKENIZER / "tokenizer.json").read_text())["model"]["vocab"])
    vocabulary = max(size, json.loads((TOKENIZER / "config.json").read_text())["vocab_size"])
    save_pair(folder, vocabulary)
    for name in ("target", "draft"):
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TOKENIZER / file, folder / name / file)
    lines = (REPOSITORY / "examples" / "prompts" / "code.jsonl").read_text().splitlines()
    chosen = [line for line in lines if json.loads(line)["split"] == "profile"][:prompts]
    chosen += [line for line in lines if json.loads(line)["split"] == "bench"][:prompts]
    (folder / "prompts.jsonl").write_text("\n".join(chosen) + "\n")
    problem = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target", "dtype": "float64"},
            "drafts": [{"name": "draft", "path": "draft", "dtype": "float64"}],
        },
        "workload": {
            "batch_sizes": [1],
            "prompt_tokens": 40,
            "output_tokens": 24,
            "task": "code",
            "prompts": "prompts.jsonl",
        }
        | workload,
    }
    path = folder / "problem.yaml"
    path.write_text(json.dumps(problem))
    return path
