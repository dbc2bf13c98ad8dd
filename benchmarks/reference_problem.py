"""Problems on the reference pair, their prompts dealt anew into two halves."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specplan.datastores import build_datastore
from specplan.ir.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "examples/reference_models"
CORPUS_BYTES = 4_000_000


def pieces_of_python(work: Path, count: int) -> Path:
    """Python's library in so many pieces, without the modules that prompts are of."""
    path = work / "texts.jsonl"
    if not path.is_file():
        command = [sys.executable, str(ROOT / "examples/training/texts.py"), "--out", str(path)]
        subprocess.run([*command, "--count", str(count), "--whole"], check=True)
    return path


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
    drafts = {"draft": MODELS / "draft"} | {name: MODELS / "heads" / name for name in heads}
    return pair_problem(
        work, drafts, task, output_tokens, prompts, batches=batches, prompt_tokens=150,
        temperature=temperature, sources=["prompt_lookup"], device="measured",
    )  # fmt: skip


def pair_problem(
    work: Path,
    drafts: Mapping[str, Path],
    task: str,
    output_tokens: int,
    prompts: Path | None = None,
    *,
    batches: Sequence[int] = (1,),
    prompt_tokens: int = 200,
    temperature: float = 0.0,
    sources: Sequence[str] = (),
    device: str = "cpu-generic",
) -> dict[str, Any]:
    """A problem of the reference target in float32, with profiles in the work folder.

    Args:
        work: the folder.
        drafts: checkpoints that draft, by name.
        task: of the prompts.
        output_tokens: of each request.
        prompts: file of them; None for those of the examples.
        batches: batch sizes of the workload.
        prompt_tokens: of each request.
        temperature: of sampling.
        sources: what drafts without a model.
        device: what it is priced for.
    """
    return {
        "schema_version": 1,
        "models": {
            "target": {"path": str(MODELS / "target"), "dtype": "float32"},
            "drafts": [
                {"name": name, "path": str(path), "dtype": "float32"}
                for name, path in drafts.items()
            ],
        },
        "sources": list(sources),
        "device": device,
        "backend": "eager",
        "workload": {
            "batch_sizes": list(batches),
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
            "temperature": temperature,
            "task": task,
            "prompts": str(prompts or ROOT / f"examples/prompts/{task}.jsonl"),
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
    build_datastore(text, folder, MODELS / "target")
    return folder
