"""Do 90 % intervals hold? Predictions are stored first; another process measures.

    python benchmarks/intervals.py predict --work DIR
    python benchmarks/intervals.py measure --work DIR [--json]

A case is one plan at one batch size over one group of prompts; its value is the speed of the whole
run, output tokens over all seconds, prompts included. The prompts of a task are dealt at random
into a half that the acceptance is measured on and a half that the cases run on. Device and
acceptance are measured by `predict`; nothing that `measure` sees flows back.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from specplan import api
from specplan.cost_models.forecast import Forecast
from specplan.ir.files import read_json, write_atomic, write_json_atomic
from specplan.ir.parser import parse_plan
from specplan.ir.printer import print_plan
from specplan.planner import Candidate, load_problem

ROOT = Path(__file__).resolve().parents[1]
BATCHES = (1, 2, 4)
GROUP = 24
"""Prompts per case: a multiple of every batch size."""
OUTPUT_TOKENS = 64
CHAINS, LOOKUPS, TREES = (2, 4, 6), (3, 6, 10), (4, 8)


def problem(work: Path, task: str, seed: int) -> dict[str, Any]:
    """The quickstart's problem on newly dealt halves of a task's prompts."""
    rows = [
        json.loads(line)
        for line in (ROOT / f"examples/prompts/{task}.jsonl").read_text("utf-8").splitlines()
    ]
    random.Random(seed).shuffle(rows)
    for place, row in enumerate(rows):
        row["split"] = ("profile", "bench")[place % 2]
    prompts = work / f"{task}.jsonl"
    write_atomic(prompts, "".join(json.dumps(row) + "\n" for row in rows))
    models = ROOT / "examples/reference_models"
    return {
        "schema_version": 1,
        "models": {
            "target": {"path": str(models / "target")},
            "drafts": [{"name": "draft", "path": str(models / "draft")}],
        },
        "sources": ["prompt_lookup"],
        "device": "measured",
        "backend": "reference",
        "workload": {
            "batch_sizes": list(BATCHES),
            "prompt_tokens": 150,
            "output_tokens": OUTPUT_TOKENS,
            "temperature": 0.0,
            "task": task,
            "prompts": str(prompts),
        },
        "objective": "latency",
        "profiles": str(work / "profiles"),
    }


def wanted(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Plain decoding, some chains, some lookups, and the best tree of some sizes."""
    trees: dict[int, Candidate] = {}
    for candidate in candidates:
        if not candidate.priced:
            continue
        options = dict(candidate.options)
        nodes, depth = options.get("nodes"), options.get("depth")
        if (
            candidate.method == "autoregressive"
            or (candidate.method == "prompt_lookup" and options["length"] in LOOKUPS)
            or (nodes is not None and nodes == depth and nodes in CHAINS)
        ):
            yield candidate
        elif nodes is not None and nodes != depth and nodes in TREES:
            best = trees.get(nodes)
            if best is None or speed(candidate) > speed(best):
                trees[nodes] = candidate
    yield from trees.values()


def speed(candidate: Candidate) -> float:
    """Predicted tokens per second at the first batch size."""
    return candidate.estimates[0].tokens_per_second_end_to_end.mean


def predict(work: Path, tasks: Sequence[str], seed: int) -> None:
    """Profile, search, and store the forecast of every case."""
    cases = []
    for task in tasks:
        described = problem(work, task, seed)
        write_json_atomic(work / f"{task}.json", described)
        result = api.optimize(described, progress=tell)
        for candidate in wanted(result.search.candidates):
            for estimate in candidate.estimates:
                forecast = Forecast.from_dict(asdict(estimate)).tokens_per_second(GROUP)
                cases.append(
                    {
                        "task": task,
                        "plan": print_plan(candidate.plan),
                        "words": f"{candidate.method} {candidate.words}",
                        "batch": estimate.batch,
                        "predicted": asdict(forecast),
                        "mean": asdict(estimate.tokens_per_second_end_to_end),
                    }
                )
    write_json_atomic(work / "predictions.json", {"cases": cases, "group": GROUP})
    print(f"{len(cases)} forecasts stored in {work / 'predictions.json'}")


def measure(work: Path, seed: int) -> list[dict[str, Any]]:
    """Run every case on every group, in a random order."""
    from specplan.measure.contenders import plan_timer
    from specplan.measure.workbench import BENCH, Workbench

    stored = read_json(work / "predictions.json", "predictions")
    benches = {
        task: Workbench(load_problem(work / f"{task}.json"))
        for task in sorted({case["task"] for case in stored["cases"]})
    }
    runs = []
    for case in stored["cases"]:
        bench = benches[case["task"]]
        timer = plan_timer(bench, parse_plan(case["plan"]))
        prompts = bench.prompts(BENCH)
        timer(prompts[: case["batch"]])  # allocates and warms caches
        for first in range(0, len(prompts) - GROUP + 1, GROUP):
            runs.append((case, timer, prompts[first : first + GROUP]))
    random.Random(seed).shuffle(runs)
    found = []
    for place, (case, timer, prompts) in enumerate(runs):
        tell("measuring", place, len(runs))
        batches = [prompts[i : i + case["batch"]] for i in range(0, GROUP, case["batch"])]
        outcomes = [timer(batch) for batch in batches]
        tokens = sum(len(output) for outcome in outcomes for output in outcome.outputs)
        value = tokens / sum(outcome.seconds for outcome in outcomes)
        found.append({**case, "plan": None, "measured": value})
        write_json_atomic(work / "measured.json", found)
    return found


def scores(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Coverage and widths, in all and by plan and batch."""

    def row(part: Sequence[dict[str, Any]]) -> dict[str, float]:
        inside = [c["predicted"]["low"] <= c["measured"] <= c["predicted"]["high"] for c in part]
        widths = [(c["predicted"]["high"] - c["predicted"]["low"]) / c["measured"] for c in part]
        errors = [c["predicted"]["mean"] / c["measured"] - 1.0 for c in part]
        return {
            "cases": len(part),
            "coverage": sum(inside) / len(part),
            "median_width": median(widths),
            "median_error": median(errors),
            "median_absolute_error": median(map(abs, errors)),
        }

    groups = sorted({(c["words"].split(" by ")[0], c["batch"]) for c in cases})
    by_plan = {
        f"{words}, batch {batch}": row(
            [c for c in cases if (c["words"].split(" by ")[0], c["batch"]) == (words, batch)]
        )
        for words, batch in groups
    }
    return {**row(cases), "by_plan": by_plan}


def tell(what: str, done: int, total: int) -> None:
    """Progress on stderr, a line every tenth."""
    if total and (done == total or done % max(1, total // 10) == 0):
        print(f"{time.strftime('%H:%M:%S')} {what} {done}/{total}", file=sys.stderr)


def main() -> None:
    """Predict or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("predict", "measure"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=["code"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.step == "predict":
        predict(options.work.resolve(), options.tasks, options.seed)
        return
    result = scores(measure(options.work.resolve(), options.seed))
    if options.json:
        print(json.dumps(result))
        return
    for name, row in [("all", result), *result["by_plan"].items()]:
        print(
            f"{name:44s} {row['cases']:4d} cases, {row['coverage']:6.1%} inside, width "
            f"{row['median_width']:5.1%}, error {row['median_error']:+6.1%}"
        )


if __name__ == "__main__":
    main()
