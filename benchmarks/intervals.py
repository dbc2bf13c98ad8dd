"""Do 90 % intervals hold? Predictions are stored first; another process measures.

    python benchmarks/intervals.py predict --work DIR
    python benchmarks/intervals.py measure --work DIR [--json]

A case is one plan at one batch size over one group of prompts. Its value is the speed of the whole
run, output tokens over all seconds, prompts included; and its speed over that of plain decoding on
the same prompts. The plans of a group take turns, batch by batch, so that what a shared machine
does in these minutes falls on all alike. The prompts of a task are dealt at random into a half that
the acceptance is measured on and a half that the cases run on. Device and acceptance are measured
by `predict`; nothing that `measure` sees flows back.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from reference_problem import dealt_problem
from reporting import every

from specplan import api
from specplan.cost_models.forecast import Forecast
from specplan.ir.files import read_json, write_json_atomic
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.measure.bench.bench import served_before
from specplan.measure.bench.contenders import Timer, plan_timer
from specplan.measure.workbench import BENCH, TokenPrompt, Workbench
from specplan.planner import PLAIN, Candidate, load_problem
from specplan.planner.search.comparing import gains

METHODS = ("autoregressive", "draft_model", "prompt_lookup")
BATCHES = (1, 4, 8)
GROUP = 24
"""Prompts per case: a multiple of every batch size."""
OUTPUT_TOKENS = 64
CHAINS, LOOKUPS, TREES = (2, 4, 6), (3, 6, 10), (4, 8)
tell = every(10)


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
    return candidate.estimates[0].tokens_per_second.mean


def predict(work: Path, tasks: Sequence[str], seed: int) -> None:
    """Profile, search, and store the forecast of every case."""
    cases = []
    for task in tasks:
        described = dealt_problem(work, task, seed, batches=BATCHES, output_tokens=OUTPUT_TOKENS)
        described["methods"] = list(METHODS)
        write_json_atomic(work / f"{task}.json", described)
        result = api.optimize(described, progress=tell)
        for candidate in wanted(result.search.candidates):
            assert candidate.plan is not None
            for estimate, plain in zip(
                candidate.estimates, result.search.plain.estimates, strict=True
            ):
                forecast = Forecast.from_dict(asdict(estimate)).tokens_per_second(GROUP)
                run = estimate
                if estimate.prompts:
                    rounds = estimate.rounds.predictive(estimate.prompts, GROUP)
                    run = replace(estimate, rounds=rounds)
                cases.append(
                    {
                        "task": task,
                        "plan": print_plan(candidate.plan),
                        "words": f"{candidate.method} {candidate.words}",
                        "batch": estimate.batch,
                        "predicted": asdict(forecast),
                        "predicted_gain": asdict(gains(run, plain, "latency")),
                    }
                )
    write_json_atomic(work / "predictions.json", {"cases": cases, "group": GROUP})
    print(f"{len(cases)} forecasts stored in {work / 'predictions.json'}")


def measure(work: Path, groups: int, seed: int) -> list[dict[str, Any]]:
    """Run every case on every group; blocks in a random order, the plans of a block in turns."""
    stored = read_json(work / "predictions.json", "predictions")
    cases: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for case in stored["cases"]:
        cases.setdefault((case["task"], case["batch"]), []).append(case)
    benches = {task: Workbench(load_problem(work / f"{task}.json")) for task, _ in cases}
    draws = random.Random(seed)
    blocks = [(*key, first) for key in cases for first in _firsts(benches[key[0]], groups)]
    draws.shuffle(blocks)
    timers: dict[int, Timer] = {}
    measurements: list[dict[str, Any]] = []
    for place, (task, batch, first) in enumerate(blocks):
        tell("measuring", place, len(blocks))
        prompts = benches[task].prompts(BENCH)[first : first + GROUP]
        block = cases[task, batch]
        for case in block:
            if id(case) not in timers:
                served = served_before(benches[task])
                timers[id(case)] = plan_timer(benches[task], parse_plan(case["plan"]), served)
                timers[id(case)](prompts[:batch])  # allocates and warms caches
        speeds = _speeds([timers[id(case)] for case in block], prompts, batch, draws)
        plain = next(s for s, c in zip(speeds, block, strict=True) if c["words"].startswith(PLAIN))
        for case, speed in zip(block, speeds, strict=True):
            measurements.append({**case, "plan": None, "measured": speed, "gain": speed / plain})
        write_json_atomic(work / "measured.json", measurements)
    return measurements


def _firsts(bench: Workbench, groups: int) -> list[int]:
    """Where the groups of a task's prompts begin."""
    return list(range(0, len(bench.prompts(BENCH)) - GROUP + 1, GROUP))[:groups]


def _speeds(
    timers: Sequence[Timer], prompts: Sequence[TokenPrompt], batch: int, draws: random.Random
) -> list[float]:
    """Tokens per second of each; all run the same batch of prompts before any runs the next."""
    tokens, seconds = [0] * len(timers), [0.0] * len(timers)
    for start in range(0, len(prompts), batch):
        for index in draws.sample(range(len(timers)), len(timers)):
            outcome = timers[index](prompts[start : start + batch])
            tokens[index] += sum(map(len, outcome.outputs))
            seconds[index] += outcome.seconds
    return [count / spent for count, spent in zip(tokens, seconds, strict=True)]


def scores(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Coverage and widths: of speeds and of gains over plain decoding, by plan and batch."""

    def row(part: Sequence[dict[str, Any]], value: str, interval: str) -> dict[str, float]:
        pairs = [(c[value], c[interval]) for c in part]
        return {
            "cases": len(pairs),
            "coverage": sum(i["low"] <= v <= i["high"] for v, i in pairs) / len(pairs),
            "below": sum(v < i["low"] for v, i in pairs) / len(pairs),
            "median_width": median((i["high"] - i["low"]) / v for v, i in pairs),
            "median_error": median(i["mean"] / v - 1.0 for v, i in pairs),
            "median_absolute_error": median(abs(i["mean"] / v - 1.0) for v, i in pairs),
        }

    drafting = [case for case in cases if not case["words"].startswith(PLAIN)]
    groups = sorted({(c["words"].split(" by ")[0], c["batch"]) for c in drafting})
    by_plan = {
        f"{words}, batch {batch}": row(
            [c for c in drafting if (c["words"].split(" by ")[0], c["batch"]) == (words, batch)],
            "gain",
            "predicted_gain",
        )
        for words, batch in groups
    }
    return {
        "speed": row(cases, "measured", "predicted"),
        "gain": row(drafting, "gain", "predicted_gain"),
        "gain_by_plan": by_plan,
    }


def main() -> None:
    """Predict or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("predict", "measure"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=["code"])
    parser.add_argument("--groups", type=int, default=4, help="of prompts, per task and batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.step == "predict":
        predict(options.work.resolve(), options.tasks, options.seed)
        return
    result = scores(measure(options.work.resolve(), options.groups, options.seed))
    if options.json:
        print(json.dumps(result))
        return
    rows = {"speed, all": result["speed"], "gain, all": result["gain"], **result["gain_by_plan"]}
    for name, row in rows.items():
        print(
            f"{name:52s} {row['cases']:4d} cases, {row['coverage']:6.1%} inside, width "
            f"{row['median_width']:5.1%}, error {row['median_error']:+6.1%}"
        )


if __name__ == "__main__":
    main()
