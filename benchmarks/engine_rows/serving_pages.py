"""Pages of documentation that print what `bench serve` printed: SGLang's cookbook, GPUStack's lab.

Both state hardware, model, parallelism and version before the results. A block of results states
the requests in flight, how many tokens went in and came out, and the mean TPOT; a block with an
accept length ran speculation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COOKBOOK = "github sgl-project/sgl-cookbook"
GPUSTACK = "github gpustack/gpustack"
_FACTS = {
    "hardware": re.compile(r"^- \**Hardware\**:\**\s*(.+)$", re.I),
    "target": re.compile(r"^- \**Model\**:\**\s*(.+)$", re.I),
    "num_devices": re.compile(r"^- \**Tensor Parallelism\**:\**\s*(\d+)", re.I),
    "engine_version": re.compile(r"^- \**SGLang version\**:\**\s*(\S+)", re.I),
}
_NUMBER = r":\s+([\d.]+)\s*$"
_RESULTS = {
    "concurrency": re.compile(r"^\s*Max(?:imum)? request concurrency" + _NUMBER),
    "requests": re.compile(r"^\s*Successful requests" + _NUMBER),
    "inputs": re.compile(r"^\s*Total input tokens" + _NUMBER),
    "outputs": re.compile(r"^\s*Total generated tokens" + _NUMBER),
    "accept_length": re.compile(r"^\s*Accept length" + _NUMBER),
    "tpot": re.compile(r"^\s*Mean TPOT \(ms\)" + _NUMBER),
}
_LAUNCH = re.compile(r"(sglang[. ](?:launch_server|serve)|vllm serve|trtllm-serve)")
_ENGINES = {"sglang": "SGLang", "vllm": "vLLM", "trtllm": "TensorRT-LLM"}
_VERSION = re.compile(r"^- \**(vLLM|SGLang|TensorRT-LLM)\**:? v?(\d\S*)", re.I)


def cookbook_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of a checkout of SGLang's cookbook."""
    for file in sorted(folder.glob("docs/autoregressive/**/*.md")):
        yield from _page(file, f"{COOKBOOK} {file.relative_to(folder)}", "SGLang", {})


def gpustack_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of GPUStack's latency page of Qwen3-8B, which states requests in flight in seconds."""
    file = folder / "docs/performance-lab/qwen3-8b/h100-latency.md"
    facts = {"hardware": "H100 SXM", "num_devices": "1", "target": "Qwen3-8B"}
    if file.exists():
        yield from _page(file, f"{GPUSTACK} {file.relative_to(folder)}", "", facts)


def _page(file: Path, source: str, engine: str, facts: dict[str, str]) -> Iterator[dict[str, Any]]:
    facts, versions, command = dict(facts), {}, ""
    block: dict[str, float] = {}
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        facts |= {key: m[1] for key, pattern in _FACTS.items() if (m := pattern.match(line))}
        if match := _VERSION.match(line):
            versions[match[1].lower()] = match[2]
        if (match := _LAUNCH.search(line)) and "bench" not in line:
            command = _whole(lines, number)
            name = next(name for key, name in _ENGINES.items() if match[1].startswith(key))
            engine = engine if facts.get("engine_version") else name
        if "Benchmark Result" in line:
            block = {}
        block |= {
            key: float(m[1]) for key, pattern in _RESULTS.items() if (m := pattern.match(line))
        }
        if "tpot" in block:
            if {"requests", "inputs", "outputs", "concurrency"} <= set(block):
                version = facts.get("engine_version") or versions.get(engine.lower(), "")
                yield _row(source, engine, facts | {"engine_version": version}, block, command)
            block = {}


def _whole(lines: list[str], number: int) -> str:
    """A command with the lines that continue it."""
    parts = [lines[number]]
    while parts[-1].rstrip().endswith("\\") and number + 1 < len(lines):
        number += 1
        parts.append(lines[number])
    return " ".join(part.strip().rstrip("\\") for part in parts)


def _row(
    source: str, engine: str, facts: dict[str, str], block: dict[str, float], command: str
) -> dict[str, Any]:
    devices = re.search(r"--tp(?:-size)?[ =](\d+)", command)
    model = re.search(r"(?:--model(?:-path)?[ =]|vllm serve |trtllm-serve )(\S+)", command)
    setting: dict[str, Any] = {
        "engine_version": facts["engine_version"],
        "num_devices": int(devices[1] if devices else facts.get("num_devices", 1)),
        "concurrency": int(block["concurrency"]),
        "input_len": round(block["inputs"] / block["requests"]),
        "output_len": round(block["outputs"] / block["requests"]),
        "command": command,
    }
    draft = None
    if "accept_length" in block or "--speculative" in command:
        setting["accept_length"] = block.get("accept_length")
        for key in ("num-steps", "eagle-topk", "num-draft-tokens"):
            if match := re.search(rf"--speculative-{key}[ =](\d+)", command):
                setting[key.replace("-", "_")] = int(match[1])
        draft = "speculation"
    return {
        "system": engine,
        "source": source,
        "hardware": facts.get("hardware", ""),
        "model_pair": {"target": model[1] if model else facts.get("target", ""), "draft": draft},
        "metric": "tpot",
        "value": block["tpot"] / 1e3,
        "unit": "s",
        "setting": setting,
        "read_or_memory": "read",
    }
