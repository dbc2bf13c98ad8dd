"""AccelMark (FreedomIntelligence, Apache-2.0): one GPU or node, several scenarios per run.

`interactive` serves one request at a time: the median TPOT is a step at batch 1. `sustained` keeps
a fixed number of requests in flight for minutes: its output tokens per second hold steps and
prefills. Lengths: median inputs of the suite's description, outputs as they were counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REPOSITORY = "github FreedomIntelligence/AccelMark"
FRAMEWORKS = {"vLLM": "vLLM", "SGLang": "SGLang"}
FORMATS = {
    "BF16": "bfloat16",
    "FP16": "float16",
    "FP8": "fp8",
    "W8A8": "w8a8",
    "W8A16": "int8",
    "W4A16": "int4-g128",
}
INPUTS = {"suite_D": 28_650, "suite_F": 95}
"""Median tokens of a prompt where it is not the 280 of the other suites (suite.json)."""
OUTPUTS = {"suite_D": 256, "suite_F": 150}
"""Median tokens of an answer, where they are not counted; 310 elsewhere."""


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of a checkout of the repository."""
    for file in sorted(folder.glob("results/*/*/**/result.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        if document.get("software", {}).get("framework") in FRAMEWORKS and _is_whole(file):
            yield from _rows(document, str(file.relative_to(folder).parent))


def _is_whole(file: Path) -> bool:
    """A result that holds all scenarios of one precision; those of one scenario repeat it."""
    return file.parent.name not in ("interactive", "sustained", "offline", "online", "burst")


def _rows(document: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    metrics, suite = document["metrics"], document["suite_id"]
    parallel = document["task"].get("parallelism") or {}
    setting = {
        "engine_version": document["software"]["framework_version"],
        "num_devices": parallel.get("tensor_parallel_size") or 1,
        "precision": FORMATS.get(document["model"]["precision"], "other"),
        "input_len": INPUTS.get(suite, 280),
        "output_len": OUTPUTS.get(suite, 310),
    }
    base = {
        "system": FRAMEWORKS[document["software"]["framework"]],
        "source": f"{REPOSITORY} {place}",
        "hardware": document["chip"]["name"],
        "model_pair": {"target": document["model"]["model_id"], "draft": None},
        "read_or_memory": "read",
    }
    interactive = metrics.get("interactive") or {}
    if interactive.get("tpot_ms_p50"):
        row = {"metric": "tpot", "value": interactive["tpot_ms_p50"] / 1e3, "unit": "s"}
        yield base | row | {"setting": setting | {"concurrency": 1}}
    sustained = metrics.get("sustained") or {}
    samples = [item for item in sustained.get("samples") or () if not item["is_warmup"]]
    requests = sum(item["requests_completed"] for item in samples)
    if requests:
        tokens = sum(item["tokens_out"] for item in samples)
        value = sustained["sustained_throughput_tokens_per_sec"]
        load = {"concurrency": sustained["sustained_concurrency"]}
        counted = setting | load | {"output_len": round(tokens / requests)}
        row = {"metric": "tokens_per_s_total", "value": value, "unit": "tokens/s"}
        yield base | row | {"setting": counted}
