"""Decoding with a target whose layers are read from a disk in every pass: predicted and measured.

A problem on the reference pair places all layers of the target on the disk that its checkpoint
lies on (`models.target.placement`). The device and acceptance are measured as for any problem, so
that a step is predicted from what layers take in memory and from what reading one takes. Plans
then continue other prompts in turns. Reads go past the page cache where the file system allows it,
which the result states. Needs an idle machine, one thread for the layers and a core for the reads:

    OMP_NUM_THREADS=1 python benchmarks/offloading.py --work DIR --json
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from reference_problem import dealt_problem

from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.placement import with_reads
from specplan.gathering import find
from specplan.measure.machine import hardware_name, versions
from specplan.measure.workbench import BENCH, Workbench
from specplan.planner import PLAIN
from specplan.planner.problem.loading import load_problem
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.search import SearchResult
from specplan.progress import silent
from specplan.runtime.generate import generate
from specplan.runtime.models.streamed import streamed_of, without_reads

METHODS = ("draft_model", "large_tree")
OUTPUT_TOKENS = 64
WIDTHS = (1, 10, 33, 65, 129)
CONTEXT = 200
PASSES = 31


def problem(work: Path, seed: int, profiled: int) -> dict[str, Any]:
    """The problem, its prompts dealt into two halves."""
    described = dealt_problem(
        work, "code", seed, batches=(1,), output_tokens=OUTPUT_TOKENS, profiled=profiled
    )
    described["models"]["target"]["placement"] = {"link": "disk"}
    described["sources"] = []
    described["methods"] = list(METHODS)
    return described


def contenders(result: SearchResult) -> dict[str, Candidate]:
    """Plain decoding, the best plan of each kind by draft models, and every large tree."""
    best: dict[str, Candidate] = {PLAIN: result.plain}
    drafting = (one for one in result.candidates if one.method != PLAIN)
    priced = [one for one in drafting if one.admissible and not one.by_cell]
    for one in sorted(priced, key=lambda one: one.estimates[0].seconds_per_token.median):
        kind = one.words if one.method == "large_tree" else one.family
        best.setdefault(kind, one)
    return best


@dataclass(frozen=True)
class Timed:
    """What reading a layer took, as a device tells it."""

    seconds: float

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """The same for every layer: those of the reference target are alike."""
        return Seconds.exact(self.seconds)


def passes(bench: Workbench, shape: ModelShape, turns: int) -> list[dict[str, float]]:
    """Passes of some widths, with reads, without them, and reads alone, all in turns.

    What the price makes of the second and the third is held against the first, at the same moment:
    drift of the machine between profile and run has no part in it.
    """
    target, rows = bench.models["target"], []
    layers = streamed_of(target)
    assert layers is not None
    for width in WIDTHS:
        place = torch.arange(CONTEXT, CONTEXT + width)[None]
        seen = torch.arange(CONTEXT + width) <= place[..., None]
        cache, tokens = target.new_cache(1, CONTEXT + width), place % 1000
        times: dict[str, list[float]] = defaultdict(list)
        for _ in range(turns + 1):
            for name in ("read", "memory", "placed"):
                begin = perf_counter()
                if name == "read":
                    count = sum(1 for _ in layers.read_through())
                else:
                    with without_reads([target]) if name == "memory" else nullcontext():
                        target.forward(tokens, place, place, seen, cache)
                times[name].append(perf_counter() - begin)
        read, memory, placed = (median(times[name][1:]) for name in ("read", "memory", "placed"))
        price = with_reads(Timed(read / count), shape, Seconds.exact(memory), width, None, None)
        rows.append(
            {
                "tokens": width,
                "in_memory_ms": 1e3 * memory,
                "reads_ms": 1e3 * read,
                "placed_ms": 1e3 * placed,
                "predicted_ms": 1e3 * price.median,
                "error": price.median / placed - 1.0,
            }
        )
    return rows


def measure(work: Path, turns: int, seed: int, profiled: int) -> dict[str, Any]:
    """Predict, run in turns, and compare."""
    path = work / "problem.json"
    path.write_text(json.dumps(problem(work, seed, profiled)), encoding="utf-8")
    loaded = load_problem(path)
    result = find(loaded, silent)
    bench = Workbench(loaded)
    plans, draws = contenders(result), random.Random(seed)
    running = {name: bench.compile(one.plan) for name, one in plans.items() if one.plan}
    prompts = bench.prompts(BENCH)
    seconds: dict[str, list[float]] = defaultdict(list)
    emitted: dict[str, list[float]] = defaultdict(list)
    texts: dict[str, list[Any]] = defaultdict(list)
    for name in running:
        generate(running[name], [bench.request(prompts[-1], 0)])  # warms caches and allocators
    for turn in range(turns):
        request = bench.request(prompts[turn % len(prompts)], 0)
        for name in draws.sample(list(running), len(running)):
            ran = generate(running[name], [request])
            seconds[name].append(ran.decode_seconds / ran.rounds)
            emitted[name].append(ran.emitted / ran.rounds)
            texts[name].append(ran.completions[0].tokens)
    layers = streamed_of(bench.models["target"])
    assert layers is not None
    rows = []
    plain = sum(seconds[PLAIN]) / len(seconds[PLAIN])
    for name, one in plans.items():
        price, step = one.estimates[0], median(seconds[name])
        tokens = sum(emitted[name]) / turns
        gains = [
            (emitted[name][n] / seconds[name][n]) / (emitted[PLAIN][n] / seconds[PLAIN][n])
            for n in range(turns)
        ]
        rows.append(
            {
                "plan": f"{one.method} {one.words}".strip(),
                "step_ms": 1e3 * step,
                "predicted_step_ms": 1e3 * price.seconds_per_round.median,
                "error": price.seconds_per_round.median / step - 1.0,
                "tokens_per_step": tokens,
                "predicted_tokens_per_step": price.tokens_per_round.mean,
                "gain": median(gains),
                "predicted_gain": result.plain.estimates[0].seconds_per_token.median
                / price.seconds_per_token.median,
                "same_texts": sum(a == b for a, b in zip(texts[name], texts[PLAIN], strict=True)),
            }
        )
    return {
        "turns": turns,
        "passes": passes(bench, result.facts.target, PASSES),
        "rows": rows,
        "chosen": f"{result.chosen.method} {result.chosen.words}".strip(),
        "past_page_cache": layers.files.direct,
        "layer_bytes": layers.files.size(0),
        "read_ms": 1e3 * result.facts.device.read_seconds("disk", layers.files.size(0)).median,
        "plain_step_ms": 1e3 * plain,
        "hardware": hardware_name(bench.models["target"].device),
        "versions": versions(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--profiled", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    result = measure(options.work.resolve(), options.turns, options.seed, options.profiled)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(f"a layer of {result['layer_bytes']} bytes is read in {result['read_ms']:.2f} ms")
    for row in result["passes"]:
        print(
            "{tokens:4d} tokens: {placed_ms:6.1f} ms (predicted {predicted_ms:.1f}, {error:+.1%}), "
            "in memory {in_memory_ms:.1f}, reads alone {reads_ms:.1f}".format_map(row)
        )
    for row in result["rows"]:
        print(
            "{step_ms:8.1f} ms a step (predicted {predicted_step_ms:.1f}, {error:+.1%}), "
            "{tokens_per_step:.2f} tokens ({predicted_tokens_per_step:.2f}), gain {gain:.2f} "
            "({predicted_gain:.2f})  {plan}".format_map(row)
        )


if __name__ == "__main__":
    main()
