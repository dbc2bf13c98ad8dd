"""Time `specplan optimize` from a cold start: a 70B target, three drafters, 32 loads, no weights.

    python benchmarks/optimize_cold.py --work DIR [--runs 5] [--json]

Llama-3.1-70B with Llama-3.1-8B, Llama-3.2-1B and an EAGLE-3 head, from their config.json alone, on
a named device, at 8 batch sizes and 4 lengths of prompts. Acceptance is given. Every run is a fresh
process, `specplan optimize` as it is typed; a first one, with `--json`, is not timed, so that files
may lie in the system's cache, and their bytecode beside them, as where a package is installed
(whatever PYTHONDONTWRITEBYTECODE says here: else every run would compile every module).
Wall-clock and processor seconds are those of the whole process, from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from costs import DRAFT, TARGET

from specplan.cost_models.acceptance.drafters import named_drafter
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.files import write_json_atomic

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (512, 2048, 8192, 32768)
DEVICE = "8xh100-sxm"
EIGHT_BILLION = TARGET | {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 14336,
}
"""config.json of meta-llama/Llama-3.1-8B."""
HEAD = TARGET | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "draft_vocab_size": 32000,
}
"""config.json of an EAGLE-3 head of Llama-3.1-70B."""
MODELS: dict[str, Mapping[str, Any]] = {
    "target": TARGET,
    "large": EIGHT_BILLION,
    "small": DRAFT,
    "head": HEAD,
}
DRAFTERS = {name for name in MODELS if name != "target"}
RATES = {
    "large": [[0.8, 0.08, 0.03, 0.01]],
    "small": [[0.65, 0.12, 0.05, 0.02]],
    "head": [[0.75, 0.1, 0.04, 0.02], [0.72, 0.1, 0.04, 0.02], [0.7, 0.1, 0.04, 0.02]],
    "text": [[0.3], [0.6], [0.7]],
}
"""P(a child of rank 0, 1, ... is accepted), by depth: round figures near published ones."""
TRIALS = 1000.0


def write_problem(work: Path) -> Path:
    """Configs, acceptance profiles and the problem in a folder."""
    for name, config in MODELS.items():
        named: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], **config}
        (work / name).mkdir(parents=True, exist_ok=True)
        write_json_atomic(work / name / "config.json", named)
    for name, rows in RATES.items():
        key = AcceptanceKey(named_drafter(name), how="given" if name == "text" else "best")
        profile = AcceptanceProfile.from_hazards(rows, key=key, trials=TRIALS)
        profile.save(work / f"{name}-rates.json")
    problem = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target"},
            "drafts": [{"name": name, "path": name} for name in MODELS if name != "target"],
        },
        "device": DEVICE,
        "backend": "none",
        "workload": {
            "batch_sizes": list(BATCHES),
            "prompt_lengths": list(CONTEXTS),
            "output_tokens": 256,
        },
        "acceptance": {name: f"{name}-rates.json" for name in RATES},
    }
    write_json_atomic(work / "problem.yaml", problem)  # JSON is YAML
    return work / "problem.yaml"


def run(problem: Path, *more: str) -> tuple[float, float, str]:
    """Wall-clock and processor seconds of one process, and what it printed."""
    command = [sys.executable, "-m", "specplan.cli", "optimize", str(problem), *more]
    given = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr)
    taken = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return wall, taken, done.stdout


def measure(work: Path, runs: int) -> dict[str, Any]:
    """Medians of several runs, and what they answered."""
    problem = write_problem(work)
    *_, answer = run(problem, "--json")  # writes bytecode where there is none yet
    explained = json.loads(answer)["explanation"]
    walls, processors, _ = zip(*(run(problem) for _ in range(runs)), strict=True)
    return {
        "wall_seconds": median(walls),
        "cpu_seconds": median(processors),
        "runs": [
            {"wall_seconds": wall, "cpu_seconds": taken}
            for wall, taken in zip(walls, processors, strict=True)
        ],
        "cores": len(os.sched_getaffinity(0)),
        "loads": len(explained["chosen"]["by_batch"]),
        "left_out": explained["left_out"],
        "candidates": explained["candidates"],
        "drafters": sorted(DRAFTERS & {words.rpartition(" ")[2] for words in _words(explained)}),
        "chosen": explained["chosen"]["words"],
    }


def _words(explained: Mapping[str, Any]) -> list[str]:
    """Of the best priced setting of every family."""
    return [entry["words"] for entry in explained["runners_up"]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.work.resolve(), options.runs)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for each in figures["runs"]:
        print(f"{each['wall_seconds']:.2f} s, {each['cpu_seconds']:.2f} s of the processor")
    print(
        f"median {figures['wall_seconds']:.2f} s, {figures['cpu_seconds']:.2f} s of the processor: "
        f"{figures['candidates']['priced']} candidates at {figures['loads']} loads; "
        f"{figures['chosen']}"
    )


if __name__ == "__main__":
    main()
