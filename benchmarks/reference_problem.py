"""Problems on the reference pair, their prompts dealt anew into two halves."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specplan.ir.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]


def dealt_problem(
    work: Path,
    task: str,
    seed: int,
    *,
    batches: Sequence[int],
    output_tokens: int,
    temperature: float = 0.0,
    profiled: int | None = None,
) -> dict[str, Any]:
    """A problem whose acceptance is measured on one half of a task's prompts, speed on the other.

    Args:
        work: folder for the dealt prompts and for the profiles.
        task: `code` or `prose`.
        seed: of the deal.
        batches: batch sizes of the workload.
        output_tokens: of each request.
        temperature: of sampling.
        profiled: prompts that acceptance is measured on; None for half of them.
    """
    rows = [
        json.loads(line)
        for line in (ROOT / f"examples/prompts/{task}.jsonl").read_text("utf-8").splitlines()
    ]
    random.Random(seed).shuffle(rows)
    for place, row in enumerate(rows):
        row["split"] = ("profile", "bench")[place % 2]
    kept = [row for row in rows if row["split"] == "profile"][:profiled]
    rows = [*kept, *(row for row in rows if row["split"] == "bench")]
    prompts = work / f"{task}.jsonl"
    write_atomic(prompts, "".join(json.dumps(row) + "\n" for row in rows))
    models = ROOT / "examples/reference_models"
    return {
        "schema_version": 1,
        "models": {
            "target": {"path": str(models / "target"), "dtype": "float32"},
            "drafts": [{"name": "draft", "path": str(models / "draft"), "dtype": "float32"}],
        },
        "sources": ["prompt_lookup"],
        "device": "measured",
        "backend": "reference",
        "workload": {
            "batch_sizes": list(batches),
            "prompt_tokens": 150,
            "output_tokens": output_tokens,
            "temperature": temperature,
            "task": task,
            "prompts": str(prompts),
        },
        "objective": "latency",
        "profiles": str(work / "profiles"),
    }
