"""Problems on the reference pair, their prompts dealt anew into two halves."""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specplan.datastores import build_datastore
from specplan.ir.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
CORPUS_BYTES = 4_000_000


def dealt_problem(
    work: Path,
    task: str,
    seed: int,
    *,
    batches: Sequence[int],
    output_tokens: int,
    temperature: float = 0.0,
    profiled: int | None = None,
    heads: Sequence[str] = (),
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
        heads: drafters besides the draft model, of the folder `heads`.
    """
    rows = [
        json.loads(line)
        for line in (ROOT / f"examples/prompts/{task}.jsonl").read_text("utf-8").splitlines()
    ]
    random.Random(seed).shuffle(rows)
    for place, row in enumerate(rows):
        row["split"] = ("profile", "bench")[place % 2]
    profile_rows = [row for row in rows if row["split"] == "profile"][:profiled]
    rows = [*profile_rows, *(row for row in rows if row["split"] == "bench")]
    prompts = work / f"{task}.jsonl"
    write_atomic(prompts, "".join(json.dumps(row) + "\n" for row in rows))
    models = ROOT / "examples/reference_models"
    drafts = {"draft": models / "draft"} | {name: models / "heads" / name for name in heads}
    return {
        "schema_version": 1,
        "models": {
            "target": {"path": str(models / "target"), "dtype": "float32"},
            "drafts": [
                {"name": name, "path": str(path), "dtype": "float32"}
                for name, path in drafts.items()
            ],
        },
        "sources": ["prompt_lookup"],
        "device": "measured",
        "backend": "eager",
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


def corpus(work: Path, task: str) -> Path:
    """A datastore of Python's own library, without the modules that prompts are of."""
    rows = (ROOT / f"examples/prompts/{task}.jsonl").read_text("utf-8").splitlines()
    prompted = {json.loads(row)["source"] for row in rows}
    texts, size = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if path.name in prompted:
            continue
        texts.append(path.read_text("utf-8", errors="replace"))
        size += len(texts[-1])
        if size > CORPUS_BYTES:
            break
    folder, text = work / f"datastore-{task}", work / f"corpus-{task}.txt"
    write_atomic(text, "\n".join(texts))
    build_datastore(text, folder, ROOT / "examples/reference_models/target")
    return folder
