"""InferenceX (SemiAnalysis): rows of its API, as `packages/app/cypress/fixtures/api` holds them.

A fixed number of requests in flight, lengths drawn from 0.8 to 1 of the stated ones, nothing
shared between prompts. Servers of one node are read; prefill on other GPUs is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = "InferenceX (SemiAnalysis), API rows"
ENGINES = {"sglang": "SGLang", "vllm": "vLLM", "trt": "TensorRT-LLM"}
MODELS = {
    "dsr1": "deepseek-ai/DeepSeek-R1",
    "llama70b": "meta-llama/Llama-3.3-70B-Instruct",
    "gptoss": "openai/gpt-oss-120b",
}
MEAN_LENGTH = 0.9


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of all `benchmarks*.json` of a folder, each once."""
    seen = set()
    for file in sorted(folder.glob("**/benchmarks*.json")):
        for entry in json.loads(file.read_text(encoding="utf-8")):
            if entry["framework"] not in ENGINES or entry["disagg"] or not entry["metrics"]:
                continue
            row = _row(entry)
            key = json.dumps(row, sort_keys=True)
            if key not in seen:
                seen.add(key)
                yield row


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "system": ENGINES[entry["framework"]],
        "source": f"{REPOSITORY} {_run(entry)}",
        "hardware": entry["hardware"],
        "model_pair": {
            "target": MODELS.get(entry["model"], entry["model"]),
            "draft": None if entry["spec_method"] == "none" else entry["spec_method"],
        },
        "metric": "tpot",
        "value": entry["metrics"].get("median_tpot") or entry["metrics"]["mean_tpot"],
        "unit": "s",
        "setting": {
            "engine_version": entry.get("image"),
            "date": entry["date"],
            "num_devices": entry["decode_tp"],
            "expert_parallel": entry["decode_ep"],
            "dp_attention": int(entry["decode_dp_attention"]),
            "precision": entry["precision"],
            "concurrency": entry["conc"],
            "input_len": round(MEAN_LENGTH * entry["isl"]),
            "output_len": round(MEAN_LENGTH * entry["osl"]),
        },
        "read_or_memory": "read",
    }


def _run(entry: dict[str, Any]) -> str:
    """The number of the run that measured it; its date where none is named."""
    address = str(entry.get("run_url") or "").split("/attempts")[0]
    return address.rsplit("/", 1)[-1] or str(entry["date"])
